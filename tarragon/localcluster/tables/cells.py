"""The few forms that most cells of a table have: a text at a path, a number, a count, a map as a selector."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

from tarragon.localcluster.tables.tables import WIDE, Cell, Column

Object = Mapping[str, Any]

NONE = "<none>"
"""What kubectl's users read where a field is not set."""


def at(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def text(*path: str, missing: str = NONE) -> Cell:
    def cell(value: Object, _: dt.datetime) -> str:
        found = at(value, *path)
        if isinstance(found, bool):
            return "true" if found else "false"
        return missing if found is None or found == "" else str(found)

    return cell


def number(*path: str) -> Cell:
    def cell(value: Object, _: dt.datetime) -> int:
        found = at(value, *path)
        return found if isinstance(found, int) else 0

    return cell


def size(*paths: str) -> Cell:
    """How many entries the fields of these names have together."""

    def cell(value: Object, _: dt.datetime) -> int:
        return sum(len(value.get(path) or ()) for path in paths)

    return cell


def pairs(*path: str) -> Cell:
    """A map as a selector is written."""

    def cell(value: Object, _: dt.datetime) -> str:
        found = at(value, *path) or {}
        return ",".join(f"{name}={text}" for name, text in sorted(found.items())) or NONE

    return cell


def joined(texts: Iterable[Any], limit: int = 0) -> str:
    """With a limit: the first so many, and how many more there are."""
    told = [str(text) for text in texts]
    if limit and len(told) > limit:
        return f"{','.join(told[:limit])} + {len(told) - limit} more..."
    return ",".join(told) or NONE


def wide(name: str, cell: Cell) -> Column:
    return Column(name, cell, priority=WIDE)
