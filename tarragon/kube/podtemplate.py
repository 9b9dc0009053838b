"""Checking a pod template against the fields that Kubernetes knows: unknown names, wrong types, missing parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from tarragon.base.quantity import milli
from tarragon.kube.meta import Json, JsonObject
from tarragon.kube.podfields import FIELDS
from tarragon.kube.reader import INT64, Reader, described


@dataclass(frozen=True, slots=True)
class Definition:
    """A type of Kubernetes: its fields with their types, and which of them must be there."""

    fields: Mapping[str, str]
    required: frozenset[str]


def check(found: Reader, kind: str = "PodTemplateSpec") -> None:
    """Note every fault of a value of that type, however deep. The kind is spelled as in `podfields`."""
    if found.is_missing:
        return
    if kind.startswith("["):
        for item in found.items():
            if item.is_missing:
                item.problem("is empty", "remove the dash or fill it in")
            check(item, kind[1:])
    elif kind.startswith("{"):
        for _, value in found.fields():
            check(value, kind[1:])
    elif kind in _SCALARS:
        _SCALARS[kind](found)
    else:
        _check_fields(found, definitions()[kind])


def without_nulls(value: Json) -> Json:
    """The same value in Kubernetes' eyes, where null and missing are one."""
    if isinstance(value, Mapping):
        return {name: without_nulls(field) for name, field in value.items() if field is not None}
    if isinstance(value, list | tuple):
        return [without_nulls(item) for item in value]
    return value


def main_container(template: JsonObject, name: str) -> JsonObject | None:
    """The container of that name, else the first one. For templates that passed `check`."""
    containers = (template.get("spec") or {}).get("containers") or []
    named = next((container for container in containers if container.get("name") == name), None)
    return named or (containers[0] if containers else None)


@cache
def definitions() -> Mapping[str, Definition]:
    """The table of `podfields`, by name."""
    paragraphs = (paragraph.split() for paragraph in FIELDS.replace("\n  ", " ").split("\n"))
    return {words[0]: _definition(words[1:]) for words in paragraphs if words}


def _definition(fields: list[str]) -> Definition:
    pairs = [field.split(":", 1) for field in fields]
    return Definition(
        fields={name.removesuffix("!"): kind for name, kind in pairs},
        required=frozenset(name[:-1] for name, _ in pairs if name.endswith("!")),
    )


def _check_fields(found: Reader, definition: Definition) -> None:
    for name, value in found.fields():
        if name in definition.fields:
            check(value, definition.fields[name])
    found.only(definition.fields)
    if isinstance(found.value, Mapping):
        for name in sorted(definition.required):
            missing = found.field(name)
            if missing.is_missing:
                missing.problem("is missing")


def _text(found: Reader) -> None:
    found.text()


def _whole(found: Reader) -> None:
    found.whole(-INT64, INT64)


def _truth(found: Reader) -> None:
    found.truth()


def _number(found: Reader) -> None:
    if isinstance(found.value, bool) or not isinstance(found.value, int | float):
        found.problem(f"must be a number, not {described(found.value)}")


def _quantity(found: Reader) -> None:
    try:
        is_quantity = not isinstance(found.value, bool) and milli(found.value) >= 0
    except (ValueError, TypeError, OverflowError):
        is_quantity = False
    if not is_quantity:
        found.problem(f"must be a quantity such as 500m, 2 or 8Gi, not {described(found.value)}")


def _whole_or_text(found: Reader) -> None:
    if isinstance(found.value, bool) or not isinstance(found.value, int | str):
        found.problem(f"must be a whole number or text, not {described(found.value)}")


def _anything(_: Reader) -> None:
    return


_SCALARS: Mapping[str, Callable[[Reader], None]] = {
    "string": _text,
    "time": _text,
    "integer": _whole,
    "number": _number,
    "boolean": _truth,
    "quantity": _quantity,
    "intstr": _whole_or_text,
    "any": _anything,
}
