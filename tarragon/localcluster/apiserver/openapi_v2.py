"""OpenAPI v2, for clients that were made before v3: kubectl until 1.26 explains, validates and edits by it.

The schemas are those of v3, said with fewer words. Of the operations only the patches are in it, with what they take:
that is how those clients learn that a server knows dry runs and validates fields.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tarragon.kube.codec import encode
from tarragon.localcluster.kinds.openapi import REFERENCE, described, grouped
from tarragon.localcluster.kinds.registry import Registry, Served

Json = dict[str, Any]

CONTENT_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""With a dot where the Accept header has an @, as real servers write it: clients cannot parse the other."""

_KEPT = (
    *("description", "format", "title", "required", "x-kubernetes-group-version-kind"),
    *("x-kubernetes-patch-strategy", "x-kubernetes-patch-merge-key", "x-kubernetes-list-type"),
    *("x-kubernetes-list-map-keys", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string"),
)
_INT_OR_STRING = "int-or-string"


class OpenApiV2:
    """One document of all that is served, made in a thread when it is first asked for, and anew when kinds change."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._made: tuple[int, Json] | None = None
        self._encoded: tuple[int, bytes] | None = None

    async def document(self) -> Json:
        generation = self._registry.generation
        made = self._made
        if made is None or made[0] != generation:
            self._made = made = generation, await asyncio.to_thread(_document, list(self._registry))
        return made[1]

    async def protobuf(self) -> bytes:
        """The same as older clients want it."""
        generation = self._registry.generation
        encoded = self._encoded
        if encoded is None or encoded[0] != generation:
            document = await self.document()
            self._encoded = encoded = generation, await asyncio.to_thread(_document_bytes, document)
        return encoded[1]


def _document(kinds: Sequence[Served]) -> Json:
    paths: Json = {}
    schemas: Json = {}
    for one in grouped(kinds).values():
        whole = described(one)
        schemas.update(whole["components"]["schemas"])
        paths.update(
            {path: {"patch": _patch(each["patch"])} for path, each in whole["paths"].items() if "patch" in each}
        )
    return {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "v1.32.0"},
        "paths": paths,
        "definitions": {name: _schema(schema) for name, schema in sorted(schemas.items())},
    }


def _schema(schema: Mapping[str, Any]) -> Json:
    reference = schema.get("$ref") or next((one["$ref"] for one in schema.get("allOf") or () if "$ref" in one), "")
    kept = {name: schema[name] for name in _KEPT if name in schema}
    if reference:
        return {"$ref": f"#/definitions/{reference.removeprefix(REFERENCE)}", **kept}
    if schema.get("x-kubernetes-int-or-string") or schema.get("format") == _INT_OR_STRING:
        return {**kept, "type": "string", "format": _INT_OR_STRING}
    kind = schema.get("type") or ("string" if "oneOf" in schema else None)  # an amount: text or a number
    below: Json = {"type": kind} if isinstance(kind, str) else {}
    if "properties" in schema:
        below["properties"] = {name: _schema(child) for name, child in schema["properties"].items()}
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), Mapping):
            below[name] = _schema(schema[name])
    return {**kept, **below}


def _patch(operation: Mapping[str, Any]) -> Json:
    parameters = [
        {"name": one["name"], "in": "query", "type": one["schema"]["type"]} for one in operation["parameters"]
    ]
    kind = operation["x-kubernetes-group-version-kind"]
    return {
        "parameters": parameters,
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": kind,
    }


# ---------------------------------------------------------------------------------------------------- as protobuf
# The messages and numbers are those of gnostic's openapi.v2.Document.


def _document_bytes(document: Json) -> bytes:
    info = _text(1, document["info"]["title"]) + _text(2, document["info"]["version"])
    paths = [_named(name, _message(8, _operation(one["patch"]))) for name, one in document["paths"].items()]
    schemas = [_named(name, _schema_bytes(one)) for name, one in document["definitions"].items()]
    return b"".join(
        [
            _text(1, document["swagger"]),
            _message(2, info),
            _message(8, b"".join(_message(2, one) for one in paths)),
            _message(9, b"".join(_message(1, one) for one in schemas)),
        ]
    )


def _operation(operation: Mapping[str, Any]) -> bytes:
    return b"".join(
        [
            *(_message(8, _parameter(one)) for one in operation["parameters"]),
            _message(9, _message(1, _named("200", _message(1, _text(1, "OK"))))),
            *_extensions(operation, 13),
        ]
    )


def _parameter(parameter: Mapping[str, Any]) -> bytes:
    query = _text(2, "query") + _text(4, parameter["name"]) + _text(6, parameter["type"])
    return _message(1, _message(2, _message(3, query)))


def _schema_bytes(schema: Mapping[str, Any]) -> bytes:
    parts = [
        _text(number, str(schema[name]))
        for name, number in (("$ref", 1), ("format", 2), ("title", 3), ("description", 4))
        if schema.get(name)
    ]
    parts += [_text(19, name) for name in schema.get("required") or ()]
    if "additionalProperties" in schema:
        parts.append(_message(21, _message(1, _schema_bytes(schema["additionalProperties"]))))
    if "type" in schema:
        parts.append(_message(22, _text(1, schema["type"])))
    if "items" in schema:
        parts.append(_message(23, _message(1, _schema_bytes(schema["items"]))))
    if "properties" in schema:
        children = (_named(name, _schema_bytes(child)) for name, child in schema["properties"].items())
        parts.append(_message(25, b"".join(_message(1, child) for child in children)))
    return b"".join([*parts, *_extensions(schema, 31)])


def _extensions(of: Mapping[str, Any], number: int) -> Iterator[bytes]:
    """In YAML, of which JSON is a part."""
    for name, value in of.items():
        if name.startswith("x-"):
            yield _message(number, _named(name, _text(2, encode(value).decode())))


def _named(name: str, value: bytes) -> bytes:
    return _text(1, name) + _message(2, value)


def _text(number: int, text: str) -> bytes:
    return _message(number, text.encode())


def _message(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    digits: list[int] = []
    while value > 0x7F:  # noqa: PLR2004 - seven bits at a time
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])


def wants_protobuf(accept: str) -> bool:
    """Whether a client's Accept header names the form of protobuf before any other."""
    first: Sequence[str] = accept.split(",")
    return "com.github.proto-openapi.spec.v2" in first[0]
