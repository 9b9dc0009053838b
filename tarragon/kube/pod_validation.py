"""Validates a pod template against the schema of Kubernetes: unknown fields, wrong types, missing required fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from tarragon.base.quantity import parse_milli
from tarragon.kube.field_reader import INT64, FieldReader, describe_value
from tarragon.kube.meta import Json, JsonObject
from tarragon.kube.pod_schema import FIELDS


@dataclass(frozen=True, slots=True)
class TypeSchema:
    """The schema of a Kubernetes type: its fields with their types, and its required fields."""

    fields: Mapping[str, str]
    required: frozenset[str]


def validated(found: FieldReader, kind: str = "PodTemplateSpec") -> Json:
    """Validate a value and return it without nulls and values of a wrong type, so that readers can rely on the types.

    All problems are noted. Unknown fields are kept, because a newer Kubernetes may know them. Returns None if nothing
    is left. `kind` is spelled as in `pod_schema`.
    """
    if found.is_missing:
        return None
    if kind.startswith("["):
        return _list(found, kind[1:])
    if kind.startswith("{"):
        return {name: value for name, field in found.fields() if (value := validated(field, kind[1:])) is not None}
    if kind in _SCALARS:
        return found.value if _SCALARS[kind](found) else None
    return _object(found, type_schemas()[kind])


def main_container(template: JsonObject, name: str) -> JsonObject | None:
    """The container of that name, else the first one. The template must have been `validated`."""
    containers = template.get("spec", {}).get("containers", [])
    named = next((container for container in containers if container.get("name") == name), None)
    return named if named is not None else next(iter(containers), None)


@cache
def type_schemas() -> Mapping[str, TypeSchema]:
    """The schemas of `pod_schema` by name."""
    paragraphs = (paragraph.split() for paragraph in FIELDS.replace("\n  ", " ").split("\n"))
    return {words[0]: _definition(words[1:]) for words in paragraphs if words}


def _definition(fields: list[str]) -> TypeSchema:
    pairs = [field.split(":", 1) for field in fields]
    return TypeSchema(
        fields={name.removesuffix("!"): kind for name, kind in pairs},
        required=frozenset(name[:-1] for name, _ in pairs if name.endswith("!")),
    )


def _list(found: FieldReader, kind: str) -> list[Json]:
    values = []
    for item in found.items():
        if item.is_missing:
            item.add_problem("is empty", "remove the dash, or add a value")
        value = validated(item, kind)
        # Keep a placeholder: without it, the indexes of later items, and so the paths of their problems, would shift.
        values.append({} if value is None and kind in type_schemas() else value)
    return [value for value in values if value is not None]


def _object(found: FieldReader, definition: TypeSchema) -> JsonObject | None:
    if not found.is_map():
        return None
    found.note_unknown_fields(definition.fields)
    for name in sorted(definition.required):
        if found.field(name).is_missing:
            found.field(name).add_problem("is missing")
    kinds = definition.fields
    values = {name: validated(field, kinds.get(name, "any")) for name, field in found.fields()}
    return {name: value for name, value in values.items() if value is not None}


def _is_string(found: FieldReader) -> bool:
    found.string()
    return isinstance(found.value, str)


def _is_integer(found: FieldReader) -> bool:
    return found.integer(-INT64, INT64) is not None


def _is_boolean(found: FieldReader) -> bool:
    found.boolean()
    return isinstance(found.value, bool)


def _is_number(found: FieldReader) -> bool:
    return _noted(found, not isinstance(found.value, bool) and isinstance(found.value, int | float), "a number")


def _is_quantity(found: FieldReader) -> bool:
    try:
        holds = not isinstance(found.value, bool) and parse_milli(found.value) >= 0
    except (ValueError, TypeError, OverflowError):
        holds = False
    return _noted(found, holds, "a quantity such as 500m, 2 or 8Gi")


def _is_int_or_string(found: FieldReader) -> bool:
    holds = not isinstance(found.value, bool) and isinstance(found.value, int | str)
    return _noted(found, holds, "a whole number or text")


def _is_anything(_: FieldReader) -> bool:
    return True


def _noted(found: FieldReader, holds: bool, wanted: str) -> bool:  # noqa: FBT001 - the result that is returned
    if not holds:
        found.add_problem(f"must be {wanted}, not {describe_value(found.value)}")
    return holds


_SCALARS: Mapping[str, Callable[[FieldReader], bool]] = {
    "string": _is_string,
    "time": _is_string,
    "integer": _is_integer,
    "number": _is_number,
    "boolean": _is_boolean,
    "quantity": _is_quantity,
    "intstr": _is_int_or_string,
    "any": _is_anything,
}
