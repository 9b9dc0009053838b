"""Checks of single values against a schema: bounds, lengths, patterns, formats, enums, sets and maps."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import math
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tarragon.kube.codec import encode, parse_time
from tarragon.localcluster.schema.field_errors import (
    FieldError,
    duplicate,
    invalid_value,
    quoted,
    unsupported,
)

ValueCheck = Callable[[str, Any], Iterator[FieldError]]
"""Yields the faults of the value at a path. Values of types that the check does not concern have none."""

_TYPE_NAMES: Mapping[type, str] = {str: "string", bool: "boolean", int: "integer", list: "array", dict: "object"}
_DURATION = re.compile(r"[-+]?(\d+(\.\d*)?(ns|us|µs|ms|s|m|h|d|w))+|[-+]?0")
_DATE_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?([Zz]|[-+]\d{2}:?\d{2})")


def type_name(value: Any) -> str:
    """The JSON type of a value. A number without a fraction is an integer, even if written as a float."""
    if value is None:
        return "null"
    if isinstance(value, float):
        return "integer" if math.isfinite(value) and value == int(value) else "number"
    return _TYPE_NAMES[type(value)]


def checks_of(openapi: Mapping[str, Any]) -> Iterator[ValueCheck]:
    """The checks of a schema for its own value, without nested ones."""
    for keyword, make in _FACTORIES.items():
        limit = openapi.get(keyword)
        if limit is not None and limit is not False:
            yield make(limit, openapi)


def _minimum(limit: Any, openapi: Mapping[str, Any]) -> ValueCheck:
    is_exclusive = bool(openapi.get("exclusiveMinimum"))
    words = f"should be greater than {'' if is_exclusive else 'or equal to '}{quoted(limit)}"
    return _of_numbers(lambda value: value > limit if is_exclusive else value >= limit, words)


def _maximum(limit: Any, openapi: Mapping[str, Any]) -> ValueCheck:
    is_exclusive = bool(openapi.get("exclusiveMaximum"))
    words = f"should be less than {'' if is_exclusive else 'or equal to '}{quoted(limit)}"
    return _of_numbers(lambda value: value < limit if is_exclusive else value <= limit, words)


def _multiple_of(limit: Any, _: Mapping[str, Any]) -> ValueCheck:
    def fits(value: float) -> bool:
        quotient = value / limit
        return math.isclose(quotient, round(quotient), abs_tol=1e-9)

    return _of_numbers(fits, f"should be a multiple of {quoted(limit)}")


def _of_numbers(fits: Callable[[float], bool], words: str) -> ValueCheck:
    def check(path: str, value: Any) -> Iterator[FieldError]:
        if isinstance(value, int | float) and not isinstance(value, bool) and not fits(value):
            yield invalid_value(path, value, f"{path} in body {words}")

    return check


def _min_length(limit: Any, _: Mapping[str, Any]) -> ValueCheck:
    def check(path: str, value: Any) -> Iterator[FieldError]:
        if isinstance(value, str) and len(value) < limit:
            yield invalid_value(path, value, f"{path} in body should be at least {limit} chars long")

    return check


def _max_length(limit: Any, _: Mapping[str, Any]) -> ValueCheck:
    def check(path: str, value: Any) -> Iterator[FieldError]:
        if isinstance(value, str) and len(value) > limit:
            yield FieldError(path, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")

    return check


def _pattern(limit: Any, _: Mapping[str, Any]) -> ValueCheck:
    expression = re.compile(str(limit))

    def check(path: str, value: Any) -> Iterator[FieldError]:
        if isinstance(value, str) and expression.search(value) is None:
            yield invalid_value(path, value, f"{path} in body should match '{limit}'")

    return check


def _format(limit: Any, _: Mapping[str, Any]) -> ValueCheck:
    fits = _FORMATS.get(str(limit))

    def check(path: str, value: Any) -> Iterator[FieldError]:
        if fits is not None and isinstance(value, str) and not fits(value):
            yield invalid_value(path, value, f"{path} in body must be of type {limit}: {quoted(value)}")

    return check


def _enum(limit: Any, _: Mapping[str, Any]) -> ValueCheck:
    allowed = {encode(one) for one in limit}

    def check(path: str, value: Any) -> Iterator[FieldError]:
        if encode(value) not in allowed:
            yield unsupported(path, value, limit)

    return check


def _min_items(limit: Any, _: Mapping[str, Any]) -> ValueCheck:
    def check(path: str, value: Any) -> Iterator[FieldError]:
        if isinstance(value, list) and len(value) < limit:
            yield invalid_value(path, len(value), f"{path} in body should have at least {limit} items")

    return check


def _max_items(limit: Any, _: Mapping[str, Any]) -> ValueCheck:
    def check(path: str, value: Any) -> Iterator[FieldError]:
        if isinstance(value, list) and len(value) > limit:
            yield FieldError(path, "FieldValueTooMany", f"Too many: {len(value)}: must have at most {limit} items")

    return check


def _min_properties(limit: Any, _: Mapping[str, Any]) -> ValueCheck:
    def check(path: str, value: Any) -> Iterator[FieldError]:
        if isinstance(value, Mapping) and len(value) < limit:
            yield invalid_value(path, len(value), f"{path} in body should have at least {limit} properties")

    return check


def _max_properties(limit: Any, _: Mapping[str, Any]) -> ValueCheck:
    def check(path: str, value: Any) -> Iterator[FieldError]:
        if isinstance(value, Mapping) and len(value) > limit:
            yield FieldError(path, "FieldValueTooMany", f"Too many: {len(value)}: must have at most {limit} items")

    return check


def _list_type(limit: Any, openapi: Mapping[str, Any]) -> ValueCheck:
    """Elements of a set are unique, and elements of a map have unique keys."""
    keys = list(openapi.get("x-kubernetes-list-map-keys") or ())

    def identity(element: Any) -> Any:
        if limit == "map" and isinstance(element, Mapping):
            return {key: element.get(key) for key in keys}
        return element

    def check(path: str, value: Any) -> Iterator[FieldError]:
        if limit not in {"set", "map"} or not isinstance(value, list):
            return
        seen: set[bytes] = set()
        for index, element in enumerate(value):
            encoded = encode(identity(element))
            if encoded in seen:
                yield duplicate(f"{path}[{index}]", identity(element))
            seen.add(encoded)

    return check


_FACTORIES: Mapping[str, Callable[[Any, Mapping[str, Any]], ValueCheck]] = {
    "minimum": _minimum,
    "maximum": _maximum,
    "multipleOf": _multiple_of,
    "minLength": _min_length,
    "maxLength": _max_length,
    "pattern": _pattern,
    "format": _format,
    "enum": _enum,
    "minItems": _min_items,
    "maxItems": _max_items,
    "minProperties": _min_properties,
    "maxProperties": _max_properties,
    "x-kubernetes-list-type": _list_type,
}


def _without_error(parse: Callable[[str], Any]) -> Callable[[str], bool]:
    def fits(text: str) -> bool:
        try:
            parse(text)
        except (ValueError, binascii.Error):
            return False
        return True

    return fits


def _parsed_time(text: str) -> None:
    if not _DATE_TIME.fullmatch(text):
        raise ValueError(text)
    parse_time(text.upper().replace(" ", "T"))


_FORMATS: Mapping[str, Callable[[str], bool]] = {
    "date-time": _without_error(_parsed_time),
    "datetime": _without_error(_parsed_time),
    "date": lambda text: re.fullmatch(r"\d{4}-\d{2}-\d{2}", text) is not None,
    "duration": lambda text: _DURATION.fullmatch(text) is not None,
    "byte": _without_error(lambda text: base64.b64decode(text, validate=True)),
    "ipv4": _without_error(ipaddress.IPv4Address),
    "ipv6": _without_error(ipaddress.IPv6Address),
    "cidr": _without_error(lambda text: ipaddress.ip_network(text, strict=False)),
    "uuid": _without_error(uuid.UUID),
}
"""Other formats are ignored, as kube-apiserver ignores formats that it does not know."""
