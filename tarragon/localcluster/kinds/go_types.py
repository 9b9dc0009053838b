"""Types of built-in kinds, from Kubernetes' own definitions: decodes objects as a Go server does.

Wrong types are rejected, unknown fields are dropped and reported, and nulls count as absent, so that validation can
rely on types. The same definitions say how a strategic merge patch merges lists.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal

from tarragon.base.quantity import canonical
from tarragon.kube.codec import parse_time
from tarragon.localcluster.kinds.openapi import OBJECT_META, REFERENCE, built_in_names, built_in_schemas

Kind = Literal["object", "map", "array", "string", "integer", "number", "boolean", "any", "special"]

_JSON_NAMES: Mapping[type, str] = {
    str: "string",
    bool: "bool",
    int: "number",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}
_TEXT = frozenset({str})
_MICROSECONDS = re.compile(r".{19}\.\d{6}(Z|[+-]\d\d:\d\d)")
_OPAQUE = ("FieldsV1", "JSONSchemaProps", "JSON", "RawExtension")
"""Definitions with arbitrary content, or content that is checked elsewhere."""


class DecodeError(Exception):
    """An object cannot be decoded as its kind. The message is that of Go's decoder."""


class GoType:
    """The type of one field. It is filled in after its creation, because types may contain themselves."""

    __slots__ = ("element", "fields", "go_type", "kind", "limit", "merge_key", "parse", "strategies", "string_fields")

    def __init__(self) -> None:
        self.kind: Kind = "any"
        self.go_type = ""
        self.limit = 2**63
        self.fields: dict[str, GoType] = {}
        self.string_fields: frozenset[str] = frozenset()
        """The string fields. Most list items set no others, which makes them quick to check."""
        self.element: GoType | None = None
        self.parse: Callable[[Any], Any] | None = None
        self.merge_key = ""
        self.strategies: tuple[str, ...] = ()

    def child(self, name: str) -> GoType:
        """The type of a field or of a map's values, `ANYTHING` if it is not declared."""
        return self.fields.get(name) or (self.element if self.kind == "map" else None) or ANYTHING


ANYTHING = GoType()


def decode_in_place(shape: GoType, thing: dict[str, Any]) -> list[str]:
    """Decode an object in place. Unknown fields are dropped, and their paths returned.

    Raises DecodeError.
    """
    decoder = _Decoder()
    decoder.fit_object(shape, thing)
    return decoder.unknown


@cache
def go_type_of(group: str, version: str, kind: str) -> GoType | None:
    """The shape of a kind, None if Kubernetes does not define it."""
    name = built_in_names().get((group, version, kind))
    return _named(name) if name is not None else None


@cache
def metadata_type() -> GoType:
    return _named(OBJECT_META)


class _Decoder:
    """One pass over an object; `path` is the current position."""

    def __init__(self) -> None:
        self.unknown: list[str] = []
        self.path: list[str] = []

    def fit_object(self, shape: GoType, value: dict[str, Any]) -> None:
        fields = shape.fields
        for name, element in list(value.items()):
            child = fields.get(name)
            if child is None:
                del value[name]
                self.unknown.append(self._path_text(name))
            elif type(element) is str and child.kind == "string":
                continue  # the most common case
            elif element is None or (element == {} and _is_map(child)):
                del value[name]  # Go does not store empty maps
            else:
                self._fit_field(shape, child, value, name)

    def _fit_field(self, owner: GoType, child: GoType, value: dict[str, Any], name: str) -> None:
        element = value[name]
        if child.kind == "string":
            if type(element) is not str:
                raise self._misfit(owner, child, element, name)
        elif child.kind != "any":
            self.path.append(name)
            value[name] = self._fitted(owner, child, element)
            self.path.pop()

    def _fitted(self, owner: GoType, shape: GoType, value: Any) -> Any:
        match shape.kind:
            case "object" if type(value) is dict:
                self.fit_object(shape, value)
            case "map" if type(value) is dict:
                self._fit_map(owner, shape, value)
            case "array" if type(value) is list:
                self._fit_array(owner, shape, value)
            case "special" if shape.parse is not None:
                return self._parsed(shape, value)
            case "any":
                pass
            case "string" | "integer" | "number" | "boolean" if _is_scalar(shape, value):
                pass
            case _:
                raise self._misfit(owner, shape, value)
        return value

    def _fit_map(self, owner: GoType, shape: GoType, value: dict[str, Any]) -> None:
        element = shape.element or ANYTHING
        is_text = element.kind == "string"
        for name, one in value.items():
            if is_text and type(one) is str:
                continue
            self.path.append(name)
            value[name] = "" if one is None and is_text else self._fitted(owner, element, one)
            self.path.pop()

    def _fit_array(self, owner: GoType, shape: GoType, value: list[Any]) -> None:
        element = shape.element or ANYTHING
        name, texts = self.path[-1], element.string_fields
        for index, one in enumerate(value):
            if type(one) is dict and one.keys() <= texts and set(map(type, one.values())) == _TEXT:
                continue
            self.path[-1] = f"{name}[{index}]"
            value[index] = self._fitted(owner, element, {} if one is None and element.kind == "object" else one)
        self.path[-1] = name

    def _parsed(self, shape: GoType, value: Any) -> Any:
        assert shape.parse is not None  # noqa: S101 - the caller checks
        try:
            return shape.parse(value)
        except ValueError as error:
            raise DecodeError(str(error)) from error

    def _misfit(self, owner: GoType, shape: GoType, value: Any, name: str = "") -> DecodeError:
        path = re.sub(r"\[\d+\]", "", self._path_text(name))
        found = _JSON_NAMES.get(type(value), "value")
        if isinstance(value, float | int) and not isinstance(value, bool) and shape.kind in {"integer", "number"}:
            found = f"number {value}"
        struct = owner.go_type.rpartition(".")[2]
        return DecodeError(
            f"json: cannot unmarshal {found} into Go struct field {struct}.{path} of type {shape.go_type}"
        )

    def _path_text(self, name: str = "") -> str:
        return ".".join([*self.path, name] if name else self.path)


def _is_map(shape: GoType) -> bool:
    """Whether this is a map of typed values. `status: {}` in a CustomResourceDefinition is not, without any fields."""
    return shape.kind == "map" and shape.element is not ANYTHING


def _is_scalar(shape: GoType, value: Any) -> bool:
    match shape.kind:
        case "string":
            return type(value) is str
        case "integer":
            return type(value) is int and -shape.limit <= value < shape.limit
        case "number":
            return type(value) in {int, float}
        case _:
            return type(value) is bool


@cache
def _named(name: str) -> GoType:
    shape = GoType()
    _SHAPES[name] = shape
    _fill(shape, built_in_schemas()[name], name)
    return shape


_SHAPES: dict[str, GoType] = {}


def _referred(name: str) -> GoType:
    """The shape of a definition, even while it is being filled in."""
    return _SHAPES.get(name) or _named(name)


def _fill(shape: GoType, schema: Mapping[str, Any], name: str) -> None:
    package, _, short = name.rpartition(".")
    shape.go_type = f"{package.rpartition('.')[2]}.{short}" if name else ""
    if short in _OPAQUE:
        return
    if short in _SPECIAL and name:
        shape.kind, shape.parse = "special", _SPECIAL[short]
    elif schema.get("properties"):
        shape.kind = "object"
        shape.fields = {field: _field(child) for field, child in schema["properties"].items()}
        shape.string_fields = frozenset(field for field, child in shape.fields.items() if child.kind == "string")
    else:
        _fill_plain(shape, schema)


def _fill_plain(shape: GoType, schema: Mapping[str, Any]) -> None:
    kind = schema.get("type")
    if kind == "array":
        shape.kind, shape.element = "array", _field(schema["items"])
        shape.go_type = f"[]{shape.element.go_type}"
    elif kind == "object":
        extra = schema.get("additionalProperties")
        shape.kind = "map"
        shape.element = _field(extra) if isinstance(extra, Mapping) else ANYTHING
        shape.go_type = f"map[string]{shape.element.go_type}"
    elif kind == "string" and schema.get("format") == "byte":
        shape.kind, shape.parse, shape.go_type = "special", _base64, "[]uint8"
    elif kind in {"string", "integer", "number", "boolean"}:
        shape.kind = kind
        shape.go_type = {"integer": str(schema.get("format") or "int64"), "boolean": "bool"}.get(kind, kind)
        if schema.get("format") == "int32":
            shape.limit = 2**31


def _field(schema: Mapping[str, Any]) -> GoType:
    """The shape of a field. A reference with a merge strategy is a copy that shares the definition's fields."""
    reference = schema.get("$ref") or next((part["$ref"] for part in schema.get("allOf") or () if "$ref" in part), "")
    if reference:
        shape = _referred(reference.removeprefix(REFERENCE))
        if not schema.get("x-kubernetes-patch-strategy"):
            return shape
        copied = GoType()
        copied.kind, copied.go_type, copied.parse = shape.kind, shape.go_type, shape.parse
        copied.fields, copied.string_fields, copied.element = shape.fields, shape.string_fields, shape.element
        shape = copied
    else:
        shape = GoType()
        _fill(shape, schema, "")
    shape.merge_key = str(schema.get("x-kubernetes-patch-merge-key") or "")
    shape.strategies = tuple(filter(None, str(schema.get("x-kubernetes-patch-strategy") or "").split(",")))
    return shape


def _quantity(value: Any) -> str:
    text = value if isinstance(value, str) else str(value)
    try:
        return canonical("-" if isinstance(value, bool | list | dict) else text)
    except ValueError as error:
        expression = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
        raise ValueError(f"quantities must match the regular expression '{expression}'") from error


def _micro_time(value: Any) -> str:
    """Check for exactly six decimals: every real server rejects others."""
    text = _time(value)
    if not _MICROSECONDS.fullmatch(text):
        layout = "2006-01-02T15:04:05.000000Z07:00"
        raise ValueError(f'parsing time "{value}" as "{layout}": cannot parse "{text[19:]}" as ".000000"')
    return text


def _time(value: Any) -> str:
    if not isinstance(value, str):
        found = _JSON_NAMES.get(type(value), "value")
        raise ValueError(f"json: cannot unmarshal {found} into Go value of type string")  # noqa: TRY004 - bad JSON
    try:
        parse_time(value)
    except ValueError as error:
        layout = "2006-01-02T15:04:05Z07:00"
        raise ValueError(f'parsing time "{value}" as "{layout}": cannot parse "{value}" as "2006"') from error
    return value


def _int_or_string(value: Any) -> int | str:
    if type(value) is int or type(value) is str:
        return value
    raise ValueError(f"json: cannot unmarshal {_JSON_NAMES.get(type(value), 'value')} into Go value of type int32")


def _base64(value: Any) -> str:
    if not isinstance(value, str):
        found = _JSON_NAMES.get(type(value), "value")
        raise ValueError(f"json: cannot unmarshal {found} into Go value of type []uint8")  # noqa: TRY004 - bad JSON
    try:
        binascii.a2b_base64(value.encode(), strict_mode=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ValueError("illegal base64 data at input byte 0") from error
    return value


_SPECIAL: Mapping[str, Callable[[Any], Any]] = {
    "IntOrString": _int_or_string,
    "MicroTime": _micro_time,
    "Quantity": _quantity,
    "Time": _time,
}
