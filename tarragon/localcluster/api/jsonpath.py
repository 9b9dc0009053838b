"""The subset of JSONPath that printer columns use: fields, indexes, wildcards and one comparison per filter."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

Step = Callable[[Any], Iterator[Any]]

_TOKEN = re.compile(
    r"""
      \.(?P<field>(?:\\.|[^.\[\]\\])+)           # .spec   .labels.app\.kubernetes\.io/name
    | \[(?:'(?P<single>[^']*)'|"(?P<double>[^"]*)")\]   # ['a.b']
    | \[(?P<index>-?\d+)\]
    | (?P<all>\[\*\]|\.\*)
    | \[\?\(\s*@\.(?P<path>[^=!<>\s]+)\s*(?P<operator>==|!=)\s*(?P<value>'[^']*'|"[^"]*"|[^)\s]+)\s*\)\]
    """,
    re.VERBOSE,
)


class BadPath(ValueError):
    """A path outside the supported subset. The message says from where."""


def find(path: str, value: Any) -> list[Any]:
    """All values at the path, in order; empty if there are none. Raises BadPath."""
    found = [value]
    for step in _steps(path):
        found = [child for parent in found for child in step(parent)]
    return found


@lru_cache(maxsize=1024)
def _steps(path: str) -> Sequence[Step]:
    text = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    if text and text[0] not in ".[":
        text = "." + text
    steps: list[Step] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise BadPath(f"can't read {text[position:]!r} of the path {path!r}; write for example .status.phase")
        steps.append(_step(match))
        position = match.end()
    return tuple(steps)


def _step(match: re.Match[str]) -> Step:
    if match["all"] is not None:
        return _children
    if match["index"] is not None:
        return _item(int(match["index"]))
    if match["path"] is not None:
        return _filter(match["path"], match["operator"] == "==", match["value"])
    if match["field"] is not None:
        return _field(re.sub(r"\\(.)", r"\1", match["field"]))
    return _field(match["single"] if match["single"] is not None else match["double"])


def _field(name: str) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return step


def _item(index: int) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list) and -len(value) <= index < len(value):
            yield value[index]

    return step


def _children(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _filter(path: str, wanted: bool, literal: str) -> Step:  # noqa: FBT001 - which of two operators
    text = literal.strip("'\"") if literal[0] in "'\"" else literal

    def step(value: Any) -> Iterator[Any]:
        for child in _children(value):
            if any((_as_literal(found) == text) is wanted for found in find("." + path, child)):
                yield child

    return step


def _as_literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
