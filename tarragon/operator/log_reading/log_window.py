"""Finds the lines that are new in the tail of a log, which is read again and again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_STAMPED = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|[+-]\d\d:\d\d) ?")

Stamp = tuple[str, str]
"""Whole seconds, and nine digits of nanoseconds, of which some runtimes leave out zeros at the end."""


@dataclass(frozen=True, slots=True)
class LogCursor:
    """How far a log was read: to this stamp, of which so many complete lines were read."""

    stamp: Stamp = ("", "")
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLines:
    """What is new in a log."""

    lines: Sequence[str]
    """Complete lines."""
    unfinished: str
    """The line that is still being written; empty if there is none. It will be new again."""
    cursor: LogCursor


def new_lines(text: bytes, cursor: LogCursor) -> NewLines:
    """Return what is new in a tail of the log, of which each line begins with its time.

    A line without one, such as a first line that was cut, is left out.
    """
    *complete, last = text.split(b"\n")
    found: list[str] = []
    counted, count = cursor.stamp, 0
    for raw in complete:
        stamp, line = _split(raw)
        if not stamp[0] or stamp < cursor.stamp:
            continue
        if stamp != counted:
            counted, count = stamp, 0
        count += 1
        if stamp > cursor.stamp or count > cursor.count:
            found.append(line)
    read = LogCursor(counted, max(count, cursor.count) if counted == cursor.stamp else count)
    return NewLines(lines=found, unfinished=_split(last)[1], cursor=read)


def _split(raw: bytes) -> tuple[Stamp, str]:
    match = _STAMPED.match(raw)
    if match is None:
        return ("", ""), raw.decode(errors="replace")
    whole, fraction = match.group(1).decode(), (match.group(2) or b"").decode().ljust(9, "0")
    return (whole, fraction), raw[match.end() :].decode(errors="replace")
