"""Types of fields for ownership: which values are owned as a whole, and which keys identify the items of a list.

Types are compiled once, from Kubernetes' own definitions or from the schema of a CustomResourceDefinition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, Literal

from tarragon.localcluster.kinds.openapi import OBJECT_META, REFERENCE, built_in_names, built_in_schemas
from tarragon.localcluster.kinds.resource import ServedKind

Kind = Literal["leaf", "map", "list", "free"]

MAX_CACHED_SHAPES = 256
_KEY_DEFAULTS: Mapping[str, Any] = {"protocol": "TCP"}
"""Defaults of keys in built-in kinds, which the bundled definitions lack."""
_NO_VALUES: Mapping[str, Any] = {"integer": 0, "string": ""}


class FieldType:
    """The type of one field. It is filled in after its creation, because types may contain themselves.

    A `leaf` is owned as a whole: a scalar, an atomic list or map. A `map` has its declared `fields`, each with its
    label, and an `element` type for all others, None if there are no others. The items of a `list` are identified by
    `keys` (with their default values) or, without keys, by their value. A `free` type takes the form of its value.
    `scalar` is the required type of a leaf (string, number, boolean), empty for any.
    `shapes` caches the field sets of objects that have only leaves, by their field names, and `lists` those of lists
    of such objects, by key values and field names.
    """

    __slots__ = ("element", "fields", "keys", "kind", "lists", "scalar", "shapes")

    def __init__(self, kind: Kind = "leaf") -> None:
        self.kind: Kind = kind
        self.scalar = ""
        self.fields: dict[str, tuple[str, FieldType]] = {}
        self.element: FieldType | None = None
        self.keys: tuple[tuple[str, Any], ...] = ()
        self.shapes: dict[tuple[str, ...], dict[str, Any]] = {}
        self.lists: dict[Any, dict[str, Any]] = {}

    def field_type(self, name: str) -> FieldType:
        """The type of a map's value, `FREE` if it is not declared."""
        field = self.fields.get(name)
        return field[1] if field is not None else self.element or FREE


LEAF = FieldType()
FREE = FieldType("free")


@lru_cache(maxsize=512)
def type_of(served: ServedKind) -> FieldType:
    """The type of a kind, cached: a definition that changes makes a new `ServedKind`."""
    if served.is_custom:
        return _Custom().root(served.openapi)
    name = built_in_names().get((served.group, served.version, served.kind))
    return _named(name) if name is not None else FREE


@cache
def metadata_type() -> FieldType:
    return _named(OBJECT_META)


@cache
def _named(name: str) -> FieldType:
    found = FieldType()
    _BY_NAME[name] = found
    _BuiltIn().fill(found, built_in_schemas()[name])
    return found


_BY_NAME: dict[str, FieldType] = {}


class _Compiler:
    """Compiles schemas; subclasses know what differs between built-in and custom ones."""

    def fill(self, found: FieldType, schema: Mapping[str, Any]) -> None:
        match schema.get("type"):
            case "array":
                self._fill_list(found, schema)
            case "object":
                self._fill_map(found, schema)
            case None if not _is_scalar(schema):
                found.kind = "free"
            case "string" | "integer" | "number" | "boolean" as scalar:
                found.scalar = "number" if scalar == "integer" else scalar
            case _:
                pass  # a leaf of any type

    def compiled(self, schema: Mapping[str, Any]) -> FieldType:
        found = FieldType()
        self.fill(found, schema)
        return found

    def _fill_map(self, found: FieldType, schema: Mapping[str, Any]) -> None:
        if schema.get("x-kubernetes-map-type") == "atomic":
            return
        found.kind = "map"
        properties = schema.get("properties") or {}
        found.fields = {name: (f"f:{name}", self.compiled(child)) for name, child in sorted(properties.items())}
        found.element = self._element(schema)

    def _fill_list(self, found: FieldType, schema: Mapping[str, Any]) -> None:
        items = schema.get("items") or {}
        keys = _list_keys(schema)
        if keys is None:
            return
        found.kind, found.element = "list", self.compiled(items)
        found.keys = tuple((key, self._key_default(key, items)) for key in sorted(keys))

    def _element(self, schema: Mapping[str, Any]) -> FieldType | None:
        extra = schema.get("additionalProperties")
        return self.compiled(extra) if isinstance(extra, Mapping) else None

    def _key_default(self, key: str, items: Mapping[str, Any]) -> Any:
        raise NotImplementedError


class _BuiltIn(_Compiler):
    def compiled(self, schema: Mapping[str, Any]) -> FieldType:
        name = _reference(schema)
        if not name:
            return super().compiled(schema)
        if schema.get("x-kubernetes-map-type") == "atomic":
            return LEAF
        return _BY_NAME.get(name) or _named(name)

    def _element(self, schema: Mapping[str, Any]) -> FieldType | None:
        """The values of a map may be anything if its schema does not declare them."""
        return super()._element(schema) or (None if schema.get("properties") else FREE)

    def _key_default(self, key: str, items: Mapping[str, Any]) -> Any:
        schema = built_in_schemas().get(_reference(items), items)
        declared = (schema.get("properties") or {}).get(key) or {}
        return _KEY_DEFAULTS.get(key, _NO_VALUES.get(str(declared.get("type"))))


class _Custom(_Compiler):
    def root(self, openapi: Mapping[str, Any] | None) -> FieldType:
        found = self.compiled(openapi or {"type": "object", "x-kubernetes-preserve-unknown-fields": True})
        found.kind = "map"
        _embed(found)
        return found

    def fill(self, found: FieldType, schema: Mapping[str, Any]) -> None:
        if not schema.get("x-kubernetes-int-or-string"):
            super().fill(found, schema)
        if schema.get("x-kubernetes-embedded-resource") and found.kind == "map":
            _embed(found)

    def _element(self, schema: Mapping[str, Any]) -> FieldType | None:
        is_open = schema.get("x-kubernetes-preserve-unknown-fields")
        return super()._element(schema) or (FREE if is_open or schema.get("additionalProperties") is True else None)

    def _key_default(self, key: str, items: Mapping[str, Any]) -> Any:
        return ((items.get("properties") or {}).get(key) or {}).get("default")


def _embed(found: FieldType) -> None:
    """Add the fields that every object has."""
    whole = {"apiVersion": LEAF, "kind": LEAF, "metadata": metadata_type()}
    found.fields = {**found.fields, **{name: (f"f:{name}", child) for name, child in whole.items()}}


def _list_keys(schema: Mapping[str, Any]) -> list[str] | None:
    """The keys of a list's items, empty for a set, None for a list that is owned as a whole."""
    match schema.get("x-kubernetes-list-type"):
        case "map":
            return list(schema.get("x-kubernetes-list-map-keys") or ())
        case "set":
            return []
        case None if "merge" in str(schema.get("x-kubernetes-patch-strategy") or "").split(","):
            key = schema.get("x-kubernetes-patch-merge-key")
            return [key] if key else []
        case _:
            return None


def _is_scalar(schema: Mapping[str, Any]) -> bool:
    return any(word in schema for word in ("oneOf", "anyOf", "format"))


def _reference(schema: Mapping[str, Any]) -> str:
    return next(_references(schema), "").removeprefix(REFERENCE)


def _references(schema: Mapping[str, Any]) -> Iterator[str]:
    for part in (schema, *(schema.get("allOf") or ())):
        if "$ref" in part:
            yield part["$ref"]
