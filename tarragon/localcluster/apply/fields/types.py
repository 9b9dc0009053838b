"""The types of fields, as far as ownership asks: what is one field, what is many, and by what list items are known.

Compiled once, from Kubernetes' own definitions or from what a CustomResourceDefinition says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, Literal

from tarragon.localcluster.kinds.openapi import OBJECT_META, REFERENCE, built_in_names, built_in_schemas
from tarragon.localcluster.kinds.resource import Served

Kind = Literal["leaf", "map", "list", "free"]

MOST_SHAPES = 256
_KEY_DEFAULTS: Mapping[str, Any] = {"protocol": "TCP"}
"""Of built-in kinds; the definitions at hand don't have them."""
_NO_VALUES: Mapping[str, Any] = {"integer": 0, "string": ""}


class Type:
    """The type of one place. Filled in after it is made, as types may contain themselves.

    A `leaf` is owned as a whole: a scalar, an atomic list or map. A `map` has its declared `fields`, each with its
    label, and an `element` for all others, None where others are not known. A `list` has items, known by `keys` (with
    the values of those left out) or, without any, by themselves. What is `free` is as its value is.
    `scalar` is what a leaf must be (string, number, boolean), empty for anything.
    `shapes` are the sets of objects whose fields are all leaves, by the names that these have; `lists` are those of
    lists of such objects, by their keys and these names.
    """

    __slots__ = ("element", "fields", "keys", "kind", "lists", "scalar", "shapes")

    def __init__(self, kind: Kind = "leaf") -> None:
        self.kind: Kind = kind
        self.scalar = ""
        self.fields: dict[str, tuple[str, Type]] = {}
        self.element: Type | None = None
        self.keys: tuple[tuple[str, Any], ...] = ()
        self.shapes: dict[tuple[str, ...], dict[str, Any]] = {}
        self.lists: dict[Any, dict[str, Any]] = {}

    def below(self, name: str) -> Type:
        """The type of a map's value; free where nothing is known."""
        field = self.fields.get(name)
        return field[1] if field is not None else self.element or FREE


LEAF = Type()
FREE = Type("free")


@lru_cache(maxsize=512)
def type_of(served: Served) -> Type:
    """A kind whose definition changes is served anew."""
    if served.is_custom:
        return _Custom().root(served.openapi)
    name = built_in_names().get((served.group, served.version, served.kind))
    return _named(name) if name is not None else FREE


@cache
def metadata_type() -> Type:
    return _named(OBJECT_META)


@cache
def _named(name: str) -> Type:
    found = Type()
    _BEING_MADE[name] = found
    _BuiltIn().fill(found, built_in_schemas()[name])
    return found


_BEING_MADE: dict[str, Type] = {}


class _Compiling:
    """What the schemas of both origins have in common."""

    def fill(self, found: Type, schema: Mapping[str, Any]) -> None:
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
                pass  # a leaf of any kind

    def made(self, schema: Mapping[str, Any]) -> Type:
        found = Type()
        self.fill(found, schema)
        return found

    def _fill_map(self, found: Type, schema: Mapping[str, Any]) -> None:
        if schema.get("x-kubernetes-map-type") == "atomic":
            return
        found.kind = "map"
        properties = schema.get("properties") or {}
        found.fields = {name: (f"f:{name}", self.made(child)) for name, child in sorted(properties.items())}
        found.element = self._element(schema)

    def _fill_list(self, found: Type, schema: Mapping[str, Any]) -> None:
        items = schema.get("items") or {}
        keys = _list_keys(schema)
        if keys is None:
            return
        found.kind, found.element = "list", self.made(items)
        found.keys = tuple((key, self._key_default(key, items)) for key in sorted(keys))

    def _element(self, schema: Mapping[str, Any]) -> Type | None:
        extra = schema.get("additionalProperties")
        return self.made(extra) if isinstance(extra, Mapping) else None

    def _key_default(self, key: str, items: Mapping[str, Any]) -> Any:
        raise NotImplementedError


class _BuiltIn(_Compiling):
    def made(self, schema: Mapping[str, Any]) -> Type:
        name = _reference(schema)
        if not name:
            return super().made(schema)
        if schema.get("x-kubernetes-map-type") == "atomic":
            return LEAF
        return _BEING_MADE.get(name) or _named(name)

    def _element(self, schema: Mapping[str, Any]) -> Type | None:
        """Of a map that says nothing about its values, these may be anything."""
        return super()._element(schema) or (None if schema.get("properties") else FREE)

    def _key_default(self, key: str, items: Mapping[str, Any]) -> Any:
        schema = built_in_schemas().get(_reference(items), items)
        declared = (schema.get("properties") or {}).get(key) or {}
        return _KEY_DEFAULTS.get(key, _NO_VALUES.get(str(declared.get("type"))))


class _Custom(_Compiling):
    def root(self, openapi: Mapping[str, Any] | None) -> Type:
        found = self.made(openapi or {"type": "object", "x-kubernetes-preserve-unknown-fields": True})
        found.kind = "map"
        _embed(found)
        return found

    def fill(self, found: Type, schema: Mapping[str, Any]) -> None:
        if not schema.get("x-kubernetes-int-or-string"):
            super().fill(found, schema)
        if schema.get("x-kubernetes-embedded-resource") and found.kind == "map":
            _embed(found)

    def _element(self, schema: Mapping[str, Any]) -> Type | None:
        is_open = schema.get("x-kubernetes-preserve-unknown-fields")
        return super()._element(schema) or (FREE if is_open or schema.get("additionalProperties") is True else None)

    def _key_default(self, key: str, items: Mapping[str, Any]) -> Any:
        return ((items.get("properties") or {}).get(key) or {}).get("default")


def _embed(found: Type) -> None:
    """What every whole object has."""
    whole = {"apiVersion": LEAF, "kind": LEAF, "metadata": metadata_type()}
    found.fields = {**found.fields, **{name: (f"f:{name}", child) for name, child in whole.items()}}


def _list_keys(schema: Mapping[str, Any]) -> list[str] | None:
    """None for a list that is owned as a whole."""
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
