"""Splits log streams into lines, skips lines that were read before, and makes lines safe for a terminal."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence

from tarragon.base.escaping import STYLE_ESCAPE
from tarragon.cli.output.style import RESET

_LONGEST_LINE = 1 << 20
"""Bytes at which a line is cut, to bound memory."""

_SHOWN_OF_UNFINISHED = 4096
"""Bytes."""

_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|\+00:00) ?")
_BACKSPACES = re.compile(r"\x08{4,}")
"""A few only correct a letter."""
_NOT_COLORS = re.compile(
    r"\x1b\[(?![0-9;]*m)[0-?]*[ -/]*[@-~]|\x9b[0-?]*[ -/]*[@-~]"  # CSI: cursor movements and the like
    # OSC and DCS: titles, the clipboard
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x80-\x9f]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b(?:[ -/]+[0-~]|[0-OQ-WYZ\\`-~])"  # character sets, saved cursors
    r"|\x1b(?!\[[0-9;]*m)"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]"
)
"""Each alternative ends at the next control character, so that matching a line of 1 MiB takes linear time."""
_COLORS = re.compile(r"\x1b(\[[0-9;]*m)")

Stamp = tuple[str, str]
"""A timestamp as (whole seconds, nine digits of nanoseconds). It sorts by time, which the text does not."""


class LineSplitter:
    """Joins chunks into lines. Invalid UTF-8 is replaced."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[str]:
        *complete, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            complete.append(self._rest)
            self._rest = b""
        return [line.decode(errors="replace") for line in complete]

    @property
    def unfinished(self) -> str:
        """The end of the line that is still being written: a bar is one line for as long as it grows."""
        return self._rest[-_SHOWN_OF_UNFINISHED:].decode(errors="replace")

    def finish(self) -> list[str]:
        """Returns the last line if it has no newline."""
        rest, self._rest = self._rest, b""
        return [rest.decode(errors="replace")] if rest else []


class LogPosition:
    """The position in a log, so that no line is repeated when it is read again after a broken connection.

    Lines with the same timestamp are counted.
    """

    def __init__(self) -> None:
        self.last: Stamp = ("", "")
        self._at_last = 0
        self._to_skip = 0

    def resume(self) -> None:
        """Call this before the same log is read again, from somewhere before the last line."""
        self._to_skip = self._at_last

    def is_new(self, stamp: Stamp) -> bool:
        if stamp < self.last:
            return False
        if stamp > self.last:
            self.last, self._at_last, self._to_skip = stamp, 1, 0
            return True
        if self._to_skip:
            self._to_skip -= 1
            return False
        self._at_last += 1
        return True


def split_stamp(line: str) -> tuple[Stamp, str]:
    """Splits a line of a log with `timestamps=true`. A line without a timestamp gets the earliest one."""
    match = _STAMP.match(line)
    if match is None:
        return ("", ""), line
    return (match[1], (match[2] or "").ljust(9, "0")), line[match.end() :]


def stamp_time(stamp: Stamp) -> dt.datetime | None:
    """Returns the time of a stamp, in whole seconds; None for a line that had no timestamp."""
    try:
        return dt.datetime.fromisoformat(f"{stamp[0]}+00:00")
    except ValueError:
        return None


def last_state(line: str) -> str:
    """Returns a line as a terminal leaves it that goes back to its beginning, as bars do; other lines as they are."""
    parts = _BACKSPACES.sub("\r", line).split("\r")
    if len(parts) == 1:
        return line
    return next((part for part in reversed(parts) if _NOT_COLORS.sub("", _COLORS.sub("", part)).strip()), "")


def terminal_text(line: str, *, colors: bool) -> str:
    """Returns a log line that is safe on a terminal: the last state of a progress bar, no escapes but colours.

    Bars go back to the beginning of their line with carriage returns, or with backspaces, as those of Keras 2.
    """
    if line.isprintable() and line.strip():
        return line
    visible = _NOT_COLORS.sub("", last_state(line))
    if not colors:
        return _COLORS.sub("", visible)
    return _COLORS.sub(rf"{STYLE_ESCAPE}\1", visible) + RESET if _COLORS.search(visible) else visible


def last_lines(lines: Sequence[str], number: int) -> list[str]:
    """Returns the last lines that are not blank."""
    return [line for line in lines if line.strip()][-number:]
