"""Encodes and decodes JSON and timestamps in Kubernetes' formats."""

from __future__ import annotations

import datetime as dt
from typing import Any, TypeVar

import msgspec

from tarragon.base.time_arithmetic import MAX_TIME, MIN_TIME
from tarragon.kube.json_depth import MAX_DEPTH, truncate_depth, with_limited_depth

T = TypeVar("T")
_encoder = msgspec.json.Encoder()
_plain_decoder = msgspec.json.Decoder(object)
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}

_WITHOUT_SCHEMA = frozenset({dict, list, object, Any})
"""Types that accept any structure. Their readers walk through the value recursively, so its depth must be limited."""
_ENVELOPE_DEPTH = 16
"""The levels around raw parts. A page of a list contains objects, and an object its spec, as raw text that is decoded
later. Each of these parts may have MAX_DEPTH levels, so the enclosing text may be that much deeper."""


def decode(data: bytes | str, model: type[T]) -> T:
    """Decode JSON. Raises msgspec.DecodeError (bad JSON) or msgspec.ValidationError (wrong type, with its path).

    Nothing else is raised for any text. Deep nesting is not an error: for a model without a schema, values deeper than
    `json_depth.MAX_DEPTH` are replaced by `json_depth.TOO_DEEP_PLACEHOLDER`; for a Struct, unknown fields are skipped.
    """
    decoder = _decoders.get(model)
    if decoder is None:
        # Creating a decoder compiles its type. The number of types is bounded by the number of Structs.
        decoder = _decoders[model] = msgspec.json.Decoder(model)
    if model in _WITHOUT_SCHEMA:
        data = with_limited_depth(_as_bytes(data))
    decoded: T
    try:
        decoded = _decoded(data, decoder)
    except RecursionError:
        decoded = _decoded_with_limit(data, decoder)
    return decoded


def decode_shallow(data: bytes) -> Any:
    """Decode JSON whose depth the caller has checked. Raises msgspec.DecodeError."""
    return _decoded(data, _plain_decoder)


def _decoded(data: bytes | str, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        return decoder.decode(data)
    except msgspec.DecodeError:
        raise
    except (ValueError, OverflowError) as error:
        # Text that is not UTF-8, and other values that Python's types reject.
        raise msgspec.DecodeError(str(error)) from error


def _decoded_with_limit(data: bytes | str, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode a text with limited depth, after the decoder reached the recursion limit of Python."""
    try:
        return _decoded(truncate_depth(_as_bytes(data), MAX_DEPTH + _ENVELOPE_DEPTH), decoder)
    except RecursionError as error:
        raise msgspec.DecodeError("the text is nested too deeply") from error


def _as_bytes(data: bytes | str) -> bytes:
    return data.encode(errors="surrogatepass") if isinstance(data, str) else bytes(data)


def encode(value: Any) -> bytes:
    """Compact UTF-8 JSON."""
    return _encoder.encode(value)


def format_time(moment: dt.datetime) -> str:
    """A metav1.Time in whole seconds: `2026-11-21T10:00:00Z`."""
    return f"{_in_utc(moment).isoformat()[:19]}Z"  # takes half a microsecond; strftime takes four


def format_micro_time(moment: dt.datetime) -> str:
    """A metav1.MicroTime, as in leases and events."""
    # Not strftime: it writes the year 1 with one digit, which API servers reject.
    return f"{_in_utc(moment).isoformat(timespec='microseconds')[:26]}Z"


def parse_time(text: str) -> dt.datetime:
    """Parse what `format_time` or `format_micro_time` wrote. Raises ValueError for anything else."""
    parsed = dt.datetime.fromisoformat(text)
    if parsed.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone; write it as 2026-11-21T10:00:00Z")
    try:
        return parsed.astimezone(dt.UTC)
    except OverflowError:
        raise ValueError(f"{text!r} is before the year 1 or after the year 9999 in UTC") from None


def _in_utc(moment: dt.datetime) -> dt.datetime:
    """The time in UTC; FIRST or LAST if that is out of range, which objects may contain."""
    try:
        return moment.astimezone(dt.UTC)
    except OverflowError:
        return MIN_TIME if moment.year == dt.MINYEAR else MAX_TIME
