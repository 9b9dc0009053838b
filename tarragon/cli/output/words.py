"""Formats durations, counts, lists and tables."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence

from tarragon.base.escaping import escaped_line

_TENTH = 0.095
_MINUTE = 60
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR


def duration_text(seconds: float) -> str:
    """Formats a duration in a sentence: `0.04 s`, `14.2 s`, `3 min 20 s`, `2 h 5 min`."""
    if 0 < seconds < _TENTH:
        return f"{seconds:.2f} s"
    tenths = round(max(0.0, seconds) * 10)
    if tenths < _MINUTE * 10:
        return f"{tenths / 10:.1f} s"
    whole = tenths // 10
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"


def age(since: dt.datetime | None, now: dt.datetime) -> str:
    """Formats an age in a column: `8s`, `5m`, `3h`, `12d`; like kubectl, but with one unit only."""
    if since is None:
        return "-"
    seconds = max(0, int((now - since).total_seconds()))
    for unit, length in (("d", _DAY), ("h", _HOUR), ("m", _MINUTE)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def span(length: dt.timedelta) -> str:
    """Formats a duration in a column with two units at most, like kubectl: `45s`, `3m20s`, `2h5m`, `3d4h`."""
    seconds = max(0, int(length.total_seconds()))
    for unit, size, below, part in (("d", _DAY, "h", _HOUR), ("h", _HOUR, "m", _MINUTE), ("m", _MINUTE, "s", 1)):
        if seconds >= size:
            rest = seconds % size // part
            return f"{seconds // size}{unit}{f'{rest}{below}' if rest else ''}"
    return f"{seconds}s"


def count(number: int, noun: str) -> str:
    """Formats a count with its noun: `1 replica`, `3 replicas`."""
    if number == 1:
        return f"1 {noun}"
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number} {plural}"


def joined(things: Sequence[str], most: int = 8) -> str:
    """Joins items: `a, b and c`; `a, b, c and 9 more` if there are more than `most`."""
    shown = list(things[:most])
    if len(things) > most:
        return f"{', '.join(shown)} and {len(things) - most} more"
    if len(shown) < 2:  # noqa: PLR2004 - nothing to join
        return "".join(shown)
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Returns the lines of a table: aligned columns with three spaces between them, no trailing spaces."""
    return ["   ".join(cells).rstrip() for cells in aligned([header, *rows])]


def aligned(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Pads every cell to the width of its column. Newlines in cells are escaped."""
    rows = [[escaped_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
