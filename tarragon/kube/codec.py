"""JSON and times as Kubernetes writes them."""

from __future__ import annotations

import datetime as dt
from typing import Any, TypeVar

import msgspec

from tarragon.base.times import FIRST, LAST
from tarragon.kube.nesting import MAX_DEPTH, limited, within_limit

T = TypeVar("T")
_encoder = msgspec.json.Encoder()
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}

_WITHOUT_SCHEMA = frozenset({dict, list, object, Any})
"""Types that take a text as it is: their readers walk through the value, and recurse."""
_SLACK = 16
"""A page of a list holds its objects, and an object its spec, as raw text that is decoded later. Each of these parts
may have MAX_DEPTH levels of its own, so the text around it is cut that much deeper."""


def decode(data: bytes | str, model: type[T]) -> T:
    """Raises msgspec.DecodeError (bad JSON) or msgspec.ValidationError (wrong type, with the path in its text).

    Nothing else is raised, whatever the text is. A deep text is no error: where the model has no schema, values deeper
    than `nesting.MAX_DEPTH` are replaced (`nesting.LEFT_OUT`); fields that a Struct does not have are skipped.
    """
    decoder = _decoders.get(model)
    if decoder is None:
        # A decoder compiles its type once; the types are as many as the program has Structs.
        decoder = _decoders[model] = msgspec.json.Decoder(model)
    if model in _WITHOUT_SCHEMA:
        data = within_limit(_as_bytes(data))
    decoded: T
    try:
        decoded = _decoded(data, decoder)
    except RecursionError:
        decoded = _decoded_in_limits(data, decoder)
    return decoded


def _decoded(data: bytes | str, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        return decoder.decode(data)
    except msgspec.DecodeError:
        raise
    except (ValueError, OverflowError) as error:
        # Text that is not UTF-8, and whatever else Python's own types refuse.
        raise msgspec.DecodeError(str(error)) from error


def _decoded_in_limits(data: bytes | str, decoder: msgspec.json.Decoder[T]) -> T:
    """The decoder met Python's recursion limit, which depends on its version and on the calls before this one."""
    try:
        return _decoded(limited(_as_bytes(data), MAX_DEPTH + _SLACK), decoder)
    except RecursionError as error:
        raise msgspec.DecodeError("the text is nested too deeply") from error


def _as_bytes(data: bytes | str) -> bytes:
    return data.encode(errors="surrogatepass") if isinstance(data, str) else bytes(data)


def encode(value: Any) -> bytes:
    """Compact UTF-8 JSON."""
    return _encoder.encode(value)


def timestamp(moment: dt.datetime) -> str:
    """metav1.Time: whole seconds, `2026-11-21T10:00:00Z`."""
    return f"{_in_utc(moment).isoformat()[:19]}Z"  # half a microsecond; strftime takes four


def micro_timestamp(moment: dt.datetime) -> str:
    """metav1.MicroTime, as leases and events have it."""
    # Not strftime: it writes the year 1 with one digit, which API servers refuse.
    return f"{_in_utc(moment).isoformat(timespec='microseconds')[:26]}Z"


def moment(text: str) -> dt.datetime:
    """The time that `timestamp` or `micro_timestamp` wrote. Raises ValueError for anything else."""
    parsed = dt.datetime.fromisoformat(text)
    if parsed.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone; write it as 2026-11-21T10:00:00Z")
    try:
        return parsed.astimezone(dt.UTC)
    except OverflowError:
        raise ValueError(f"{text!r} is before the year 1 or after the year 9999 in UTC") from None


def _in_utc(moment: dt.datetime) -> dt.datetime:
    """The first or last moment of the calendar for a time of which UTC is beyond it: an object may hold such a one."""
    try:
        return moment.astimezone(dt.UTC)
    except OverflowError:
        return FIRST if moment.year == dt.MINYEAR else LAST
