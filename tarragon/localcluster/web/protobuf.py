"""Protobuf bodies of the few kinds for which kubectl sends nothing else: `kubectl create namespace` and its like.

kubectl does not fall back to JSON. Only the fields that it fills in are listed; the numbers are those of Kubernetes'
generated.proto files. Other fields are skipped, as protobuf has it.
"""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tarragon.kube.codec import timestamp

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"

_MAGIC = b"k8s\0"

Raw = int | bytes
Read = Callable[[Raw], Any]


class Malformed(ValueError):
    """The bytes are no message of Kubernetes."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message: its name in JSON, and what its bytes mean."""

    name: str
    read: Read
    is_list: bool = False
    is_map: bool = False


Message = Mapping[int, Field]


def decoded(data: bytes) -> dict[str, Any] | None:
    """The object in JSON's shape; None for a kind that is not listed here. Raises Malformed."""
    if not data.startswith(_MAGIC):
        raise Malformed("the body does not begin as protobuf of Kubernetes does")
    unknown = _read(data[len(_MAGIC) :], _UNKNOWN)
    kind = unknown.get("typeMeta") or {}
    message = _KINDS.get((kind.get("apiVersion", ""), kind.get("kind", "")))
    if message is None:
        return None
    return {**kind, **_read(unknown.get("raw", b""), message)}


def _read(data: bytes, message: Message) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for number, raw in _fields(data):
        field = message.get(number)
        if field is None:
            continue
        read = field.read(raw)
        if field.is_map:
            value.setdefault(field.name, {})[read.get("key", "")] = read.get("value", "")
        elif field.is_list:
            value.setdefault(field.name, []).append(read)
        else:
            value[field.name] = read
    # Go writes every text, empty or not; in JSON an empty one would be a value.
    return {name: each for name, each in value.items() if each not in ("", None)}


def _fields(data: bytes) -> Iterator[tuple[int, Raw]]:
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        match wire:
            case 0:
                raw, position = _varint(data, position)
                yield number, raw
            case 2:
                size, position = _varint(data, position)
                yield number, _taken(data, position, size)
                position += size
            case 1 | 5:
                position += 8 if wire == 1 else 4
            case _:
                raise Malformed(f"a field has the wire type {wire}, which Kubernetes never sends")


def _taken(data: bytes, position: int, size: int) -> bytes:
    if position + size > len(data):
        raise Malformed("the body ends in the middle of a field")
    return data[position : position + size]


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for count in range(10):
        if position >= len(data):
            raise Malformed("the body ends in the middle of a number")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:  # noqa: PLR2004 - the bit that says that more follows
            return value, position
    raise Malformed("a number is longer than any number can be")


# --------------------------------------------------------------------------------------------- what bytes can mean


def _bytes(raw: Raw) -> bytes:
    if isinstance(raw, int):
        raise Malformed("a number stands where bytes should be")
    return raw


def _text(raw: Raw) -> str:
    try:
        return _bytes(raw).decode()
    except UnicodeDecodeError:
        raise Malformed("a text is not UTF-8") from None


def _base64(raw: Raw) -> str:
    return base64.b64encode(_bytes(raw)).decode()


def _number(raw: Raw) -> int:
    if isinstance(raw, bytes):
        raise Malformed("bytes stand where a number should be")
    return raw - (1 << 64) if raw >= 1 << 63 else raw


def _truth(raw: Raw) -> bool:
    return bool(_number(raw))


def _moment(raw: Raw) -> str | None:
    seconds = _read(_bytes(raw), _TIME).get("seconds", 0)
    try:
        # Go's zero time is what a moment that was never set looks like.
        return timestamp(dt.datetime.fromtimestamp(seconds, dt.UTC)) if seconds > 0 else None
    except (OverflowError, ValueError):
        raise Malformed("a moment lies beyond all calendars") from None


def _of(message: Message) -> Read:
    return lambda raw: _read(_bytes(raw), message)


def _text_map(name: str) -> Field:
    return Field(name, _of({1: Field("key", _text), 2: Field("value", _text)}), is_map=True)


def _bytes_map(name: str) -> Field:
    return Field(name, _of({1: Field("key", _text), 2: Field("value", _base64)}), is_map=True)


# ------------------------------------------------------------------------------------------------------ the messages

_UNKNOWN: Message = {
    1: Field("typeMeta", _of({1: Field("apiVersion", _text), 2: Field("kind", _text)})),
    2: Field("raw", _bytes),
}
_TIME: Message = {1: Field("seconds", _number)}
_OWNER: Message = {
    1: Field("kind", _text),
    3: Field("name", _text),
    4: Field("uid", _text),
    5: Field("apiVersion", _text),
    6: Field("controller", _truth),
    7: Field("blockOwnerDeletion", _truth),
}
_METADATA: Message = {
    1: Field("name", _text),
    2: Field("generateName", _text),
    3: Field("namespace", _text),
    5: Field("uid", _text),
    6: Field("resourceVersion", _text),
    8: Field("creationTimestamp", _moment),
    11: _text_map("labels"),
    12: _text_map("annotations"),
    13: Field("ownerReferences", _of(_OWNER), is_list=True),
    14: Field("finalizers", _text, is_list=True),
}
_REFERENCE: Message = {1: Field("name", _text)}
_OBJECT_REFERENCE: Message = {
    1: Field("kind", _text),
    2: Field("namespace", _text),
    3: Field("name", _text),
    4: Field("uid", _text),
    5: Field("apiVersion", _text),
}
_DELETE_OPTIONS: Message = {
    1: Field("gracePeriodSeconds", _number),
    2: Field("preconditions", _of({1: Field("uid", _text), 2: Field("resourceVersion", _text)})),
    3: Field("orphanDependents", _truth),
    4: Field("propagationPolicy", _text),
    5: Field("dryRun", _text, is_list=True),
}
_KINDS: Mapping[tuple[str, str], Message] = MappingProxyType(
    {
        ("v1", "Namespace"): {1: Field("metadata", _of(_METADATA))},
        ("v1", "ConfigMap"): {
            1: Field("metadata", _of(_METADATA)),
            2: _text_map("data"),
            3: _bytes_map("binaryData"),
            4: Field("immutable", _truth),
        },
        ("v1", "Secret"): {
            1: Field("metadata", _of(_METADATA)),
            2: _bytes_map("data"),
            3: Field("type", _text),
            4: _text_map("stringData"),
            5: Field("immutable", _truth),
        },
        ("v1", "ServiceAccount"): {
            1: Field("metadata", _of(_METADATA)),
            2: Field("secrets", _of(_OBJECT_REFERENCE), is_list=True),
            3: Field("imagePullSecrets", _of(_REFERENCE), is_list=True),
            4: Field("automountServiceAccountToken", _truth),
        },
        ("v1", "DeleteOptions"): _DELETE_OPTIONS,
        ("policy/v1", "Eviction"): {
            1: Field("metadata", _of(_METADATA)),
            2: Field("deleteOptions", _of(_DELETE_OPTIONS)),
        },
    }
)
