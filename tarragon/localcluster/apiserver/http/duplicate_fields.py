"""Fields that a body gives twice: of all but the last nothing would be left, and nobody would have been told."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tarragon.kube.codec import encode
from tarragon.localcluster.api.requests import FieldValidation, WriteOptions


class _Object(dict[str, Any]):
    """With the names that it has been given again."""

    def __init__(self, pairs: Sequence[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.again: list[str] = []
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                self.again.append(name)
            seen.add(name)


def doubles(data: bytes) -> list[str]:
    """Of JSON: what a real server says of each. Of what is no JSON there is nothing to say here."""
    found = False

    def made(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal found
        plain = dict(pairs)
        if len(plain) == len(pairs):
            return plain
        found = True
        return _Object(pairs)

    try:
        value = json.loads(data, object_pairs_hook=made)
    except (ValueError, RecursionError):
        return []
    return [f'duplicate field "{path}"' for path in _paths(value, "")] if found else []


def with_doubles(options: WriteOptions, data: bytes, value: object) -> WriteOptions:
    """The options, saying so if anybody wants to know. `value` is what the data has been read as."""
    if options.field_validation is FieldValidation.IGNORE or _is_whole(data, value):
        return options
    found = doubles(data)
    return replace(options, doubles=found) if found else options


def _is_whole(data: bytes, value: object) -> bool:
    """Whether nothing has been lost, at a third of the price of looking: a field that is has taken its colon along.

    A colon that is written as an escape says nothing either way.
    """
    return b"\\u003" not in data and data.count(b":") == encode(value).count(b":")


def _paths(value: Any, place: str) -> Iterator[str]:
    match value:
        case dict():
            inside = f"{place}." if place else ""
            again = value.again if isinstance(value, _Object) else []
            yield from (f"{inside}{name}" for name in dict.fromkeys(again))
            for name, child in value.items():
                yield from _paths(child, f"{inside}{name}")
        case list():
            for index, child in enumerate(value):
                yield from _paths(child, f"{place}[{index}]")
        case _:
            pass
