"""Computes the changes between two JSON values, and applies them to a value that may have been edited since."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

from tarragon.kube.meta import Json

ABSENT = object()
"""Stands for a missing value. Null is a value."""

Step = str | int

MAX_KEPT_LENGTH = 100
"""The maximum length of an old value in characters of JSON. Of a longer one only a digest is kept, for comparison."""


@dataclass(frozen=True, slots=True)
class Digest:
    """Stands for a value that only needs to be compared."""

    hex: str


@dataclass(frozen=True, slots=True)
class Change:
    """A change at `path` from `was` to `is_`. Either may be ABSENT; `was` may be a Digest."""

    path: tuple[Step, ...]
    was: Json
    is_: Json

    def as_json(self) -> Json:
        was = digest(self.was)
        before = {"was": self.was} if was is None else {"digest": was.hex}
        return {
            "at": list(self.path),
            **({} if self.was is ABSENT else before),
            **({} if self.is_ is ABSENT else {"is": self.is_}),
        }


def diff(before: Json, after: Json, path: tuple[Step, ...] = ()) -> Iterator[Change]:
    """The changes, as deep as possible. Lists of equal length are compared by item, others are replaced as a whole."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in [*before, *(name for name in after if name not in before)]:
            yield from diff(before.get(name, ABSENT), after.get(name, ABSENT), (*path, name))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from diff(old, new, (*path, index))
    elif before is ABSENT or after is ABSENT or not _same(before, after):
        yield Change(path, before, after)


def apply(value: Json, wanted: Iterable[Change]) -> Json:
    """Apply each change whose old value is still there. Parts that were edited since stay unchanged."""
    for change in wanted:
        value = _changed(value, change.path, change)
    return value


def from_json(found: Json) -> Sequence[Change]:
    """Decode what `as_json` wrote. Raises ValueError for anything else."""
    try:
        return [Change(tuple(each["at"]), _was(each), each.get("is", ABSENT)) for each in found if _is_path(each["at"])]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("is not a list of changes") from error


def digest(value: Json) -> Digest | None:
    """The digest of a value; None if it is short enough to be kept itself."""
    if isinstance(value, Digest):
        return value
    if value is ABSENT:
        return None
    text = json.dumps(value, sort_keys=True)
    return Digest(sha256(text.encode()).hexdigest()[:32]) if len(text) > MAX_KEPT_LENGTH else None


def _was(each: Json) -> Json:
    return Digest(str(each["digest"])) if "digest" in each else each.get("was", ABSENT)


def _is_path(steps: Json) -> bool:
    if isinstance(steps, list) and all(isinstance(step, str | int) for step in steps):
        return True
    raise ValueError("has a change without a path")


def _changed(value: Json, path: Sequence[Step], change: Change) -> Json:
    if not path:
        return change.is_ if _is_as_it_was(value, change.was) else value
    step, rest = path[0], path[1:]
    if isinstance(value, dict) and isinstance(step, str):
        new = _changed(value.get(step, ABSENT), rest, change)
        others = {name: each for name, each in value.items() if name != step}
        if new is ABSENT:
            return others
        return {**value, step: new}
    if isinstance(value, list) and isinstance(step, int) and step < len(value):
        return [*value[:step], _changed(value[step], rest, change), *value[step + 1 :]]
    return value  # The enclosing value was removed by an edit.


def _is_as_it_was(value: Json, was: Json) -> bool:
    if isinstance(was, Digest):
        return digest(value) == was
    return value is was or (value is not ABSENT and _same(value, was))


def _same(one: Json, other: Json) -> bool:
    """Whether two values are equal as JSON, where true is not 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)
