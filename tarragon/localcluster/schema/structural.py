"""Checks that a schema is structural, so that it can be compiled. CRDs with other schemas are rejected."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tarragon.localcluster.schema.field_errors import FieldError, forbidden_value, invalid_value, required, unsupported

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_JUNCTIONS = ("allOf", "anyOf", "oneOf")


def structural_faults(openapi: Any, path: str) -> Iterator[FieldError]:
    """Yields everything that keeps a schema from being structural."""
    if not isinstance(openapi, Mapping):
        yield invalid_value(path, openapi, "must be a schema")
        return
    yield from _type_faults(openapi, path)
    if openapi.get("properties") and openapi.get("additionalProperties"):
        yield forbidden_value(path, "additionalProperties and properties are mutual exclusive")
    yield from _keyword_faults(openapi, path)
    for below, child in _children(openapi, path):
        yield from structural_faults(child, below)
    for below, branch in _branches(openapi, path):
        yield from _branch_faults(branch, below)


def metadata_faults(openapi: Any, path: str) -> Iterator[FieldError]:
    """The server defines metadata: a schema may say that it is an object, and restrict its name and generateName."""
    properties = openapi.get("properties") if isinstance(openapi, Mapping) else None
    metadata = properties.get("metadata") if isinstance(properties, Mapping) else None
    if not isinstance(metadata, Mapping):
        return
    restricted = metadata.get("properties") or {}
    if metadata.keys() - {"type", "default", "properties"} or restricted.keys() - {"name", "generateName"}:
        yield forbidden_value(
            f"{path}.properties[metadata]",
            "must not specify anything other than name and generateName, but metadata is implicitly specified",
        )


def _type_faults(openapi: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    kind = openapi.get("type")
    is_free = openapi.get("x-kubernetes-preserve-unknown-fields") or openapi.get("x-kubernetes-int-or-string")
    if not kind and not is_free:
        yield required(f"{path}.type", "must not be empty for specified object fields")
    elif kind and kind not in _TYPES:
        yield unsupported(f"{path}.type", kind, _TYPES)
    if kind == "array" and "items" not in openapi:
        yield required(f"{path}.items", "must be specified")


def _keyword_faults(openapi: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    for keywords, is_valid in _KEYWORDS.items():
        for keyword in keywords.split():
            if openapi.get(keyword) is not None and not is_valid(openapi[keyword]):
                yield invalid_value(f"{path}.{keyword}", openapi[keyword], "is not a valid value of this keyword")
    if "$ref" in openapi:
        yield forbidden_value(f"{path}.$ref", "$ref is not supported")
    pattern = openapi.get("pattern")
    try:
        re.compile(pattern if isinstance(pattern, str) else "")
    except re.error as error:
        words = f"must be a valid regular expression, but isn't: {error}"
        yield invalid_value(f"{path}.pattern", pattern, words)


def _branch_faults(openapi: Any, path: str) -> Iterator[FieldError]:
    """A branch of a junction needs no types, because it only validates."""
    if not isinstance(openapi, Mapping):
        yield invalid_value(path, openapi, "must be a schema")
        return
    yield from _keyword_faults(openapi, path)
    for below, child in (*_children(openapi, path), *_branches(openapi, path)):
        yield from _branch_faults(child, below)


def _children(openapi: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    properties = openapi.get("properties")
    if isinstance(properties, Mapping):
        for name, child in properties.items():
            yield f"{path}.properties[{name}]", child
    if isinstance(openapi.get("additionalProperties"), Mapping):
        yield f"{path}.additionalProperties", openapi["additionalProperties"]
    if openapi.get("items") is not None:
        yield f"{path}.items", openapi["items"]


def _branches(openapi: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for word in _JUNCTIONS:
        branches = openapi.get(word)
        for index, branch in enumerate(branches if isinstance(branches, list) else ()):
            yield f"{path}.{word}[{index}]", branch
    if openapi.get("not") is not None:
        yield f"{path}.not", openapi["not"]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_list_of_text(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


_KEYWORDS: Mapping[str, Callable[[Any], bool]] = {
    "minimum maximum": _is_number,
    "multipleOf": lambda value: _is_number(value) and value > 0,
    "minLength maxLength minItems maxItems minProperties maxProperties": _is_count,
    "enum allOf anyOf oneOf": lambda value: isinstance(value, list),
    "required x-kubernetes-list-map-keys": _is_list_of_text,
    "pattern format x-kubernetes-list-type x-kubernetes-map-type": lambda value: isinstance(value, str),
    "nullable exclusiveMinimum exclusiveMaximum": lambda value: isinstance(value, bool),
    "x-kubernetes-preserve-unknown-fields x-kubernetes-embedded-resource x-kubernetes-int-or-string": (
        lambda value: isinstance(value, bool)
    ),
    "properties": lambda value: isinstance(value, Mapping),
    "additionalProperties": lambda value: isinstance(value, Mapping | bool),
}
"""Keywords and their valid values. A CRD with others would break every later write of its objects."""
