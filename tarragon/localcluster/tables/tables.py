"""Objects as rows of a meta.k8s.io Table, which is what `kubectl get` asks for and prints."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tarragon.kube.codec import encode, moment
from tarragon.localcluster.api.jsonpath import BadPath, find
from tarragon.localcluster.kinds.registry import PrinterColumn

Cell = Callable[[Mapping[str, Any], dt.datetime], Any]
"""What a column says of an object at a moment: text, a number, a truth, or None for nothing."""

WIDE = 1
"""The priority of columns that only `-o wide` shows."""


@dataclass(frozen=True, slots=True)
class Column:
    """`name` as in the heading; kubectl writes it in capitals."""

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
class Shape:
    """How a client wants its table: which version of it, and what of the object travels with each row."""

    version: Literal["v1", "v1beta1"] = "v1"
    include: Literal["None", "Metadata", "Object"] = "Metadata"


def table(
    columns: Sequence[Column],
    objects: Sequence[Mapping[str, Any]],
    shape: Shape,
    now: dt.datetime,
) -> dict[str, Any]:
    """The Table without list metadata: whoever knows the list adds it."""
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{shape.version}",
        "metadata": {},
        "columnDefinitions": [column.definition for column in columns],
        "rows": [
            {"cells": [_told(column, value, now) for column in columns], "object": _attached(value, shape)}
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


def _told(column: Column, value: Mapping[str, Any], now: dt.datetime) -> Any:
    """One object of a wrong shape must not hide all the others from whoever wants to find and mend it."""
    try:
        return column.cell(value, now)
    except (AttributeError, LookupError, TypeError, ValueError):
        return "<invalid>"


def _attached(value: Mapping[str, Any], shape: Shape) -> Any:
    match shape.include:
        case "None":
            return None
        case "Metadata":
            return metadata_only(value, shape.version)
        case "Object":
            return value


# ------------------------------------------------------------------------------------------ what columns are made of


def name_of(value: Mapping[str, Any], _: dt.datetime) -> str:
    return str((value.get("metadata") or {}).get("name") or "")


def age_of(value: Mapping[str, Any], now: dt.datetime) -> str:
    return since((value.get("metadata") or {}).get("creationTimestamp"), now)


NAME = Column("Name", name_of, format="name", description="Name must be unique within a namespace.")
AGE = Column("Age", age_of, description="The time since the object was created.")


def custom_columns(columns: Sequence[PrinterColumn]) -> list[Column]:
    """The columns of a custom kind: its name, then what its CRD says, or its age when that says nothing."""
    if not columns:
        return [NAME, AGE]
    return [NAME, *(_custom_column(column) for column in columns)]


def _custom_column(column: PrinterColumn) -> Column:
    def cell(value: Mapping[str, Any], now: dt.datetime) -> Any:
        try:
            found = find(column.json_path, value)
        except BadPath:
            return None
        return _as_type(column.type, found[0], now) if found else None

    return Column(column.name, cell, column.type, column.format, column.priority, column.description)


def _as_type(kind: str, value: Any, now: dt.datetime) -> Any:
    """The value as the column's type promises it; None when it is something else."""
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


# ------------------------------------------------------------------------------------------------- lengths of time


def since(timestamp: Any, now: dt.datetime) -> str:
    """How long ago a metav1.Time was, as `kubectl get` says it."""
    if not timestamp:
        return "<unknown>"
    try:
        return duration(now - moment(str(timestamp)))
    except ValueError:
        return "<invalid>"


# Up to so many seconds: the unit that is told, and the smaller one that is told beside it, if any.
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
    """`90s`, `5m3s`, `47h`, `3d4h`: two units at most, and only where the second one matters."""
    seconds = int(length.total_seconds())
    if seconds < -1:
        return "<invalid>"  # two clocks that disagree by more than a moment
    seconds = max(0, seconds)
    for limit, (unit, letter), finer in _SPANS:
        if seconds < limit:
            whole, rest = divmod(seconds, unit)
            if finer is None or rest < finer[0]:
                return f"{whole}{letter}"
            return f"{whole}{letter}{rest // finer[0]}{finer[1]}"
    return f"{seconds // _YEAR}y"
