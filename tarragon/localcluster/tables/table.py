"""Renders objects as rows of a meta.k8s.io Table, which `kubectl get` requests and prints."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tarragon.kube.codec import encode, parse_time
from tarragon.localcluster.api.jsonpath import BadPath, find
from tarragon.localcluster.kinds.registry import PrinterColumn

Cell = Callable[[Mapping[str, Any], dt.datetime], Any]
"""Computes a cell from an object and the time: text, a number, a boolean, or None for an empty cell."""

WIDE = 1
"""The priority of columns that only `-o wide` shows."""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column. `name` is the heading, which kubectl prints in capitals."""

    name: str
    cell: Cell
    type: str = "string"
    format: str = ""
    priority: int = 0
    description: str = ""

    @property
    def definition(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """The Table that a client requests: its version, and how much of the object comes with each row."""

    version: Literal["v1", "v1beta1"] = "v1"
    include: Literal["None", "Metadata", "Object"] = "Metadata"


def table(
    columns: Sequence[TableColumn],
    objects: Sequence[Mapping[str, Any]],
    shape: TableOptions,
    now: dt.datetime,
) -> dict[str, Any]:
    """The Table without list metadata, which the caller adds."""
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{shape.version}",
        "metadata": {},
        "columnDefinitions": [column.definition for column in columns],
        "rows": [
            {"cells": [_cell_value(column, value, now) for column in columns], "object": _attached(value, shape)}
            for value in objects
        ],
    }


def metadata_only(value: Mapping[str, Any], version: str) -> dict[str, Any]:
    """The object as a PartialObjectMetadata."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": value.get("metadata") or {},
    }


def _cell_value(column: TableColumn, value: Mapping[str, Any], now: dt.datetime) -> Any:
    """A malformed object is shown as `<invalid>`, so that users still see the others and can repair it."""
    try:
        return column.cell(value, now)
    except (AttributeError, LookupError, TypeError, ValueError):
        return "<invalid>"


def _attached(value: Mapping[str, Any], shape: TableOptions) -> Any:
    match shape.include:
        case "None":
            return None
        case "Metadata":
            return metadata_only(value, shape.version)
        case "Object":
            return value


# ------------------------------------------------------------------------------------------------------------ columns


def name_of(value: Mapping[str, Any], _: dt.datetime) -> str:
    return str((value.get("metadata") or {}).get("name") or "")


def age_of(value: Mapping[str, Any], now: dt.datetime) -> str:
    return since((value.get("metadata") or {}).get("creationTimestamp"), now)


NAME = TableColumn("Name", name_of, format="name", description="Name must be unique within a namespace.")
AGE = TableColumn("Age", age_of, description="The time since the object was created.")


def custom_columns(columns: Sequence[PrinterColumn]) -> list[TableColumn]:
    """The columns of a custom kind: its name, then those of its CRD, or its age if the CRD has none."""
    if not columns:
        return [NAME, AGE]
    return [NAME, *(_custom_column(column) for column in columns)]


def _custom_column(column: PrinterColumn) -> TableColumn:
    def cell(value: Mapping[str, Any], now: dt.datetime) -> Any:
        try:
            found = find(column.json_path, value)
        except BadPath:
            return None
        return _as_type(column.type, found[0], now) if found else None

    return TableColumn(column.name, cell, column.type, column.format, column.priority, column.description)


def _as_type(kind: str, value: Any, now: dt.datetime) -> Any:
    """The value converted to the column's type, None if it has another type."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match kind:
        case "integer":
            return int(value) if is_number else None
        case "number":
            return float(value) if is_number else None
        case "boolean":
            return value if isinstance(value, bool) else None
        case "date":
            return since(value, now) if isinstance(value, str) else None
        case _:
            return _as_text(value)


def _as_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return encode(value).decode()


# ---------------------------------------------------------------------------------------------------------- durations


def since(timestamp: Any, now: dt.datetime) -> str:
    """The time since a metav1.Time, as `kubectl get` writes it."""
    if not timestamp:
        return "<unknown>"
    try:
        return duration(now - parse_time(str(timestamp)))
    except ValueError:
        return "<invalid>"


# A limit in seconds; the unit that is used below it; and the smaller unit beside that, if any.
_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400
_SPANS: Sequence[tuple[int, tuple[int, str], tuple[int, str] | None]] = (
    (2 * _MINUTE, (1, "s"), None),
    (10 * _MINUTE, (_MINUTE, "m"), (1, "s")),
    (3 * _HOUR, (_MINUTE, "m"), None),
    (8 * _HOUR, (_HOUR, "h"), (_MINUTE, "m")),
    (2 * _DAY, (_HOUR, "h"), None),
    (8 * _DAY, (_DAY, "d"), (_HOUR, "h")),
    (2 * _YEAR, (_DAY, "d"), None),
    (8 * _YEAR, (_YEAR, "y"), (_DAY, "d")),
)


def duration(length: dt.timedelta) -> str:
    """A duration in at most two units: `90s`, `5m3s`, `47h`, `3d4h`. The second appears only where it matters."""
    seconds = int(length.total_seconds())
    if seconds < -1:
        return "<invalid>"  # the clocks disagree by more than a second
    seconds = max(0, seconds)
    for limit, (unit, letter), finer in _SPANS:
        if seconds < limit:
            whole, rest = divmod(seconds, unit)
            if finer is None or rest < finer[0]:
                return f"{whole}{letter}"
            return f"{whole}{letter}{rest // finer[0]}{finer[1]}"
    return f"{seconds // _YEAR}y"
