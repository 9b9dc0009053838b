"""Structural schemas of custom kinds, compiled once into a tree that prunes, defaults and validates objects.

Messages and their order are kube-apiserver's. `x-kubernetes-validations` (CEL) are not evaluated: the server warns
clients that write them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tarragon.kube.codec import decode, encode
from tarragon.localcluster.schema.field_errors import FieldError, required
from tarragon.localcluster.schema.value_checks import ValueCheck, checks_of, type_name

_OBJECT_FIELDS = frozenset({"apiVersion", "kind", "metadata"})
"""The fields of every whole object, whether its schema declares them or not."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SchemaNode:
    """One node of a schema. `types` is empty if any type is allowed. `default` is encoded, None without a default.

    `prunes` and `defaults` say whether there is anything to do here or below, so that most of an object is skipped.
    """

    types: tuple[str, ...] = ()
    is_nullable: bool = False
    properties: Mapping[str, SchemaNode]
    additional: SchemaNode | None = None
    items: SchemaNode | None = None
    preserves: bool = False
    is_whole_object: bool = False
    default: bytes | None = None
    required: tuple[str, ...] = ()
    checks: tuple[ValueCheck, ...] = ()
    prunes: bool = False
    defaults: bool = False


class StructuralSchema:
    """A compiled schema of a whole object."""

    def __init__(self, openapi: Mapping[str, Any]) -> None:
        self._root = _compiled({**openapi, "x-kubernetes-embedded-resource": True})

    def prune(self, thing: dict[str, Any]) -> list[str]:
        """Drop unknown fields in place, and return their paths."""
        unknown: list[str] = []
        _prune(self._root, thing, "", unknown)
        return unknown

    def default(self, thing: dict[str, Any]) -> None:
        """Fill in defaults in place, and drop nulls that are not allowed."""
        _default(self._root, thing)

    def validate(self, thing: Mapping[str, Any]) -> list[FieldError]:
        """All faults, with their paths."""
        return list(_validate(self._root, thing, ""))


def _compiled(openapi: Mapping[str, Any]) -> SchemaNode:
    properties = {name: _compiled(child) for name, child in (openapi.get("properties") or {}).items()}
    additional, items = openapi.get("additionalProperties"), openapi.get("items")
    extra = _compiled(additional) if isinstance(additional, Mapping) else None
    element = _compiled(items) if isinstance(items, Mapping) else None
    children = [*properties.values(), *(child for child in (extra, element) if child is not None)]
    preserves = bool(openapi.get("x-kubernetes-preserve-unknown-fields")) or additional is True
    is_object = openapi.get("type") == "object"
    return SchemaNode(
        types=_types(openapi),
        is_nullable=bool(openapi.get("nullable")),
        properties=properties,
        additional=extra,
        items=element,
        preserves=preserves,
        is_whole_object=bool(openapi.get("x-kubernetes-embedded-resource")),
        default=encode(openapi["default"]) if openapi.get("default") is not None else None,
        required=tuple(openapi.get("required") or ()),
        checks=(*checks_of(openapi), *_junctions(openapi)),
        prunes=(is_object and not preserves and extra is None) or any(child.prunes for child in children),
        # Any property may be a null that is not allowed, so any property needs a visit.
        defaults=bool(properties) or any(child.defaults for child in children),
    )


def _types(openapi: Mapping[str, Any]) -> tuple[str, ...]:
    if openapi.get("x-kubernetes-int-or-string"):
        return ("integer", "string")
    kind = openapi.get("type")
    return (kind,) if isinstance(kind, str) and kind else ()


def _prune(node: SchemaNode, value: Any, path: str, unknown: list[str]) -> None:
    if isinstance(value, dict):
        _prune_object(node, value, path, unknown)
    elif isinstance(value, list) and node.items is not None and node.items.prunes:
        for index, element in enumerate(value):
            _prune(node.items, element, f"{path}[{index}]", unknown)


def _prune_object(node: SchemaNode, value: dict[str, Any], path: str, unknown: list[str]) -> None:
    for name in list(value):
        if node.is_whole_object and name in _OBJECT_FIELDS:
            continue  # a schema may mention metadata, but a CRD does not define its content
        child = node.properties.get(name) or node.additional
        below = f"{path}.{name}" if path else name
        if child is not None:
            if child.prunes:
                _prune(child, value[name], below, unknown)
        elif not node.preserves:
            del value[name]
            unknown.append(below)


def _default(node: SchemaNode, value: Any) -> None:
    if isinstance(value, dict):
        for name, child in node.properties.items():
            _default_property(child, value, name)
        if node.additional is not None:
            for name in [name for name in value if name not in node.properties]:
                _default_property(node.additional, value, name)
    elif isinstance(value, list) and node.items is not None and node.items.defaults:
        for element in value:
            _default(node.items, element)


def _default_property(child: SchemaNode, parent: dict[str, Any], name: str) -> None:
    if parent.get(name) is None and not (child.is_nullable and name in parent):
        if child.default is not None:
            parent[name] = decode(child.default, object)
        elif name in parent:
            del parent[name]
    if child.defaults and name in parent:
        _default(child, parent[name])


def _validate(node: SchemaNode, value: Any, path: str) -> Iterator[FieldError]:
    if value is None and node.is_nullable:
        return
    if node.types and not _is_of_type(value, node.types):
        found = type_name(value)
        words = f'Invalid value: "{found}": {path} in body must be of type {",".join(node.types)}: "{found}"'
        yield FieldError(path, "FieldValueTypeInvalid", words)
        return
    for check in node.checks:
        yield from check(path, value)
    if isinstance(value, Mapping):
        yield from _validate_object(node, value, path)
    elif isinstance(value, list) and node.items is not None:
        for index, element in enumerate(value):
            yield from _validate(node.items, element, f"{path}[{index}]")


def _validate_object(node: SchemaNode, value: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    prefix = f"{path}." if path else ""
    for name in node.required:
        if name not in value:
            yield required(f"{prefix}{name}")
    for name, element in value.items():
        child = node.properties.get(name) or node.additional
        if child is not None:
            yield from _validate(child, element, f"{prefix}{name}")


def _is_of_type(value: Any, types: tuple[str, ...]) -> bool:
    found = type_name(value)
    return found in types or (found == "integer" and "number" in types)


def _junctions(openapi: Mapping[str, Any]) -> Iterator[ValueCheck]:
    """allOf, anyOf, oneOf and not, whose branches only validate."""
    branches: dict[str, list[SchemaNode]] = {
        word: [_compiled(branch) for branch in openapi.get(word) or ()] for word in ("allOf", "anyOf", "oneOf")
    }
    if branches["allOf"]:
        yield _all_of(branches["allOf"])
    if branches["anyOf"]:
        yield _any_of(branches["anyOf"])
    if branches["oneOf"]:
        yield _one_of(branches["oneOf"])
    if isinstance(openapi.get("not"), Mapping):
        yield _none_of(_compiled(openapi["not"]))


def _all_of(branches: list[SchemaNode]) -> ValueCheck:
    def check(path: str, value: Any) -> Iterator[FieldError]:
        faults = [fault for branch in branches for fault in _validate(branch, value, path)]
        if faults:
            yield _unmet(f'"{path}" must validate all the schemas (allOf)')
            yield from faults

    return check


def _any_of(branches: list[SchemaNode]) -> ValueCheck:
    return _counting(
        branches, lambda valid: valid > 0, lambda path, _: f'"{path}" must validate at least one schema (anyOf)'
    )


def _one_of(branches: list[SchemaNode]) -> ValueCheck:
    def words(path: str, valid: int) -> str:
        found = f"Found {valid} valid alternatives" if valid else "Found none valid"
        return f'"{path}" must validate one and only one schema (oneOf). {found}'

    return _counting(branches, lambda valid: valid == 1, words)


def _counting(branches: list[SchemaNode], fits: Callable[[int], bool], words: Callable[[str, int], str]) -> ValueCheck:
    def check(path: str, value: Any) -> Iterator[FieldError]:
        faults = [list(_validate(branch, value, path)) for branch in branches]
        valid = sum(not some for some in faults)
        if not fits(valid):
            yield _unmet(words(path, valid))
            if not valid:
                yield from min(faults, key=len)

    return check


def _none_of(branch: SchemaNode) -> ValueCheck:
    def check(path: str, value: Any) -> Iterator[FieldError]:
        if not any(_validate(branch, value, path)):
            yield _unmet(f'"{path}" must not validate the schema (not)')

    return check


def _unmet(message: str) -> FieldError:
    """The fault of a junction. The server names no field, which Go prints as `<nil>`."""
    return FieldError("<nil>", "FieldValueInvalid", f'Invalid value: "": {message}')
