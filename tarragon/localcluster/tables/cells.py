"""The common cells of tables: text or a number at a path, a count, a map in the form of a selector."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

from tarragon.localcluster.tables.table import WIDE, Cell, TableColumn

Object = Mapping[str, Any]

NONE = "<none>"
"""The text for a field that is not set, as in kubectl."""


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
    """The number of entries in the fields of these names."""

    def cell(value: Object, _: dt.datetime) -> int:
        return sum(len(value.get(path) or ()) for path in paths)

    return cell


def pairs(*path: str) -> Cell:
    """A map in the form of a selector: `a=b,c=d`."""

    def cell(value: Object, _: dt.datetime) -> str:
        found = at(value, *path) or {}
        return ",".join(f"{name}={text}" for name, text in sorted(found.items())) or NONE

    return cell


def joined(texts: Iterable[Any], limit: int = 0) -> str:
    """Texts separated by commas; with a limit, the first ones and the number of the others."""
    items = [str(text) for text in texts]
    if limit and len(items) > limit:
        return f"{','.join(items[:limit])} + {len(items) - limit} more..."
    return ",".join(items) or NONE


def wide(name: str, cell: Cell) -> TableColumn:
    return TableColumn(name, cell, priority=WIDE)
