"""JSON and times as Kubernetes writes them."""

from __future__ import annotations

import datetime as dt
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
_encoder = msgspec.json.Encoder()
_decoders: dict[type[Any], msgspec.json.Decoder[Any]] = {}


def decode(data: bytes | str, model: type[T]) -> T:
    """Raises msgspec.DecodeError (bad JSON) or msgspec.ValidationError (wrong type, with the path in its text)."""
    decoder = _decoders.get(model)
    if decoder is None:
        # A decoder compiles its type once; the types are as many as the program has Structs.
        decoder = _decoders[model] = msgspec.json.Decoder(model)
    decoded: T = decoder.decode(data)
    return decoded


def encode(value: Any) -> bytes:
    """Compact UTF-8 JSON."""
    return _encoder.encode(value)


def timestamp(moment: dt.datetime) -> str:
    """metav1.Time: whole seconds, `2026-11-21T10:00:00Z`."""
    return f"{moment.astimezone(dt.UTC).isoformat()[:19]}Z"  # half a microsecond; strftime takes four


def micro_timestamp(moment: dt.datetime) -> str:
    """metav1.MicroTime, as leases and events have it."""
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def moment(text: str) -> dt.datetime:
    """The time that `timestamp` or `micro_timestamp` wrote. Raises ValueError for anything else."""
    parsed = dt.datetime.fromisoformat(text)
    if parsed.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone; write it as 2026-11-21T10:00:00Z")
    return parsed.astimezone(dt.UTC)
