"""Decodes protobuf bodies, which `kubectl create` and typed Go clients send, into the object's JSON form.

Fields that are not in the table are skipped, as protobuf prescribes.
"""

from __future__ import annotations

import base64
import datetime as dt
import struct
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from tarragon.kube.codec import decode, format_micro_time, format_time
from tarragon.kube.json_depth import MAX_MANIFEST_DEPTH, is_depth_within
from tarragon.localcluster.apiserver.http.messages import Field, Message, message, message_of

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"

_MAGIC = b"k8s\0"
_DEEPEST = MAX_MANIFEST_DEPTH // 2
"""The depth limit of nested messages. Each becomes one or two levels of JSON."""

Bytes = bytes | memoryview
"""Mostly a view: bytes would be copied once for each level of nesting."""
Raw = int | Bytes


class Malformed(ValueError):
    """The bytes are not a Kubernetes message."""


def decoded(data: bytes) -> dict[str, Any] | None:
    """Return the object as decoded JSON; None for a kind without a protobuf message. Raises Malformed."""
    if not data.startswith(_MAGIC):
        raise Malformed("the body does not begin with the magic bytes of Kubernetes protobuf")
    whole = memoryview(data)[len(_MAGIC) :]
    wrapper = _read(whole, _UNKNOWN, 0)
    content = _bytes(dict(_fields(whole)).get(_RAW, b""))
    kind = wrapper.get("typeMeta") or {}
    found = message_of(kind.get("apiVersion", ""), kind.get("kind", ""))
    if found is None:
        return None
    return {**kind, **_read(content, found, 0)}


def _read(data: Bytes, fields: Message, depth: int) -> dict[str, Any]:
    if depth > _DEEPEST:
        raise Malformed("messages are nested too deeply")
    value: dict[str, Any] = {}
    for number, raw in _fields(data):
        field = fields.get(number)
        if field is not None:
            _put(value, field, raw, depth + 1)
    return value


def _put(value: dict[str, Any], field: Field, raw: Raw, depth: int) -> None:
    if field.is_map:
        key, one = _entry(_bytes(raw), field.type, depth)
        value.setdefault(field.name, {})[key] = one
        return
    read = _one(raw, field.type, depth)
    if field.is_spread:
        value.update(read)
    elif field.is_list:
        value.setdefault(field.name, []).append(read)
    elif read is not None and not (field.omits_zero and read in _ZEROS):
        value[field.name] = read


_ZEROS = ("", 0, False, 0.0)
"""Go encodes these whether or not they were set; JSON omits them."""


def _entry(data: Bytes, kind: str, depth: int) -> tuple[str, Any]:
    """Return key and value of a map entry. A part that is not encoded is zero."""
    parts = dict(_fields(data))
    key = _text(parts.get(1, b""))
    return key, _one(parts.get(2, 0 if kind in {"int", "bool"} else b""), kind, depth)


def _one(raw: Raw, kind: str, depth: int) -> Any:
    read = _SCALARS.get(kind)
    if read is not None:
        return read(raw)
    how, _, below = kind.rpartition(" ")
    match how:
        case "items":
            return [_one(each, below, depth) for number, each in _fields(_bytes(raw)) if number == 1]
        case "either":
            return _either(_bytes(raw), message(below), depth)
        case _:
            return _read(_bytes(raw), message(kind), depth)


def _either(data: Bytes, fields: Message, depth: int) -> Any:
    """Return the one field that is set: a schema, or the boolean or list in its place."""
    read = _read(data, fields, depth)
    return read.get("schema", next((value for name, value in read.items() if name != "schema"), None))


# ------------------------------------------------------------------------------------------------------ the wire


def _fields(data: Bytes) -> Iterator[tuple[int, Raw]]:
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        match wire:
            case 0:
                raw, position = _varint(data, position)
                yield number, raw
            case 1 | 5:
                size = 8 if wire == 1 else 4
                yield number, _taken(data, position, size)
                position += size
            case 2:
                size, position = _varint(data, position)
                yield number, _taken(data, position, size)
                position += size
            case _:
                raise Malformed(f"a field has the wire type {wire}, which Kubernetes never sends")


def _taken(data: Bytes, position: int, size: int) -> Bytes:
    if position + size > len(data):
        raise Malformed("the body ends in the middle of a field")
    return data[position : position + size]


def _varint(data: Bytes, position: int) -> tuple[int, int]:
    value = 0
    for count in range(10):
        if position >= len(data):
            raise Malformed("the body ends in the middle of a number")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:  # noqa: PLR2004 - the bit that says that more follows
            return value, position
    raise Malformed("a varint is longer than 64 bits")


# ---------------------------------------------------------------------------------------------------- scalar types


def _bytes(raw: Raw) -> Bytes:
    if isinstance(raw, int):
        raise Malformed("expected bytes, found a number")
    return raw


def _text(raw: Raw) -> str:
    try:
        return str(_bytes(raw), "utf-8")
    except UnicodeDecodeError:
        raise Malformed("a string is not UTF-8") from None


def _base64(raw: Raw) -> str:
    return base64.b64encode(_bytes(raw)).decode()


def _number(raw: Raw) -> int:
    if not isinstance(raw, int):
        raise Malformed("expected a number, found bytes")
    return raw - (1 << 64) if raw >= 1 << 63 else raw


def _truth(raw: Raw) -> bool:
    return bool(_number(raw))


def _double(raw: Raw) -> float:
    try:
        value: float = struct.unpack("<d", _bytes(raw))[0]
    except struct.error:
        raise Malformed("a floating point number does not have 8 bytes") from None
    return value


def _instant(raw: Raw) -> dt.datetime | None:
    """Return the time; None for Go's zero time, which means that the field was not set."""
    parts = dict(_fields(_bytes(raw)))
    seconds, nanos = _number(parts.get(1, 0)), _number(parts.get(2, 0))
    try:
        return dt.datetime.fromtimestamp(seconds, dt.UTC).replace(microsecond=nanos // 1000) if seconds > 0 else None
    except (OverflowError, ValueError, OSError):
        raise Malformed("a time is out of range") from None


def _time(raw: Raw) -> str | None:
    instant = _instant(raw)
    return format_time(instant) if instant is not None else None


def _micro_time(raw: Raw) -> str | None:
    instant = _instant(raw)
    return format_micro_time(instant) if instant is not None else None


def _duration(raw: Raw) -> str:
    """Return a Go duration in nanoseconds, so that nothing is rounded."""
    return f"{_number(dict(_fields(_bytes(raw))).get(1, 0))}ns"


def _quantity(raw: Raw) -> str:
    return _text(dict(_fields(_bytes(raw))).get(1, b"0")) or "0"


def _int_or_string(raw: Raw) -> int | str:
    parts = dict(_fields(_bytes(raw)))
    return _text(parts.get(3, b"")) if _number(parts.get(1, 0)) == 1 else _number(parts.get(2, 0))


def _embedded(raw: Raw) -> Any:
    """Return a field that holds JSON."""
    data = bytes(_bytes(dict(_fields(_bytes(raw))).get(1, b"")))
    if not is_depth_within(data, MAX_MANIFEST_DEPTH):
        raise Malformed(f"JSON within the message is nested deeper than {MAX_MANIFEST_DEPTH} levels")
    try:
        return decode(data, object) if data else None
    except msgspec.DecodeError:
        raise Malformed("a field of the message that should hold JSON does not") from None


_SCALARS: Mapping[str, Callable[[Raw], Any]] = MappingProxyType(
    {
        "bool": _truth,
        "bytes": _base64,
        "double": _double,
        "duration": _duration,
        "embedded": _embedded,
        "int": _number,
        "intstr": _int_or_string,
        "microtime": _micro_time,
        "quantity": _quantity,
        "string": _text,
        "time": _time,
        "typemeta": lambda raw: _read(_bytes(raw), _TYPE, 0),
    }
)
_RAW = 2
_UNKNOWN: Message = {1: Field("typeMeta", "typemeta")}
_TYPE: Message = {1: Field("apiVersion", "string"), 2: Field("kind", "string")}
