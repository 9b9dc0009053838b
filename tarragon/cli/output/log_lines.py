"""Log lines out of a stream of bytes: whole ones, each once, cleaned for where they are going."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence

from tarragon.base.escaping import ESC
from tarragon.cli.output.style import RESET

_LIMIT = 1 << 20
"""A line that never ends is cut here: memory is finite."""

_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|\+00:00) ?")
_NOT_COLORS = re.compile(
    r"\x1b\[(?![0-9;]*m)[0-?]*[ -/]*[@-~]|\x9b[0-?]*[ -/]*[@-~]"  # CSI: cursor movements and the like
    # OSC and DCS: titles, the clipboard
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x80-\x9f]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b(?:[ -/]+[0-~]|[0-OQ-WYZ\\`-~])"  # character sets, saved cursors
    r"|\x1b(?!\[[0-9;]*m)"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]"
)
"""Each alternative ends at the next control character: a line of a mebibyte is read once."""
_COLORS = re.compile(r"\x1b(\[[0-9;]*m)")

Stamp = tuple[str, str]
"""Whole seconds and nine digits of nanoseconds: compares as time does, which the text itself does not."""


class Lines:
    """Puts chunks together into lines. Bytes that are no UTF-8 are shown as such, not as an error."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[str]:
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > _LIMIT:
            whole.append(self._rest)
            self._rest = b""
        return [line.decode(errors="replace") for line in whole]

    def finish(self) -> list[str]:
        """What came without a line end."""
        rest, self._rest = self._rest, b""
        return [rest.decode(errors="replace")] if rest else []


class Position:
    """How far a log has been read, so that reading it again after a broken connection repeats nothing.

    Two lines may carry the same moment: they are counted.
    """

    def __init__(self) -> None:
        self.last: Stamp = ("", "")
        self._at_last = 0
        self._to_skip = 0

    def resume(self) -> None:
        """The same log is about to be read once more, from somewhere before the last line."""
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


def stamped(line: str) -> tuple[Stamp, str]:
    """The moment that `timestamps=true` puts before each line, and the line. Without one, the earliest moment."""
    match = _STAMP.match(line)
    if match is None:
        return ("", ""), line
    return (match[1], (match[2] or "").ljust(9, "0")), line[match.end() :]


def moment(stamp: Stamp) -> dt.datetime | None:
    """To the second. None for the stamp of a line that had none."""
    try:
        return dt.datetime.fromisoformat(f"{stamp[0]}+00:00")
    except ValueError:
        return None


def shown(line: str, *, colors: bool) -> str:
    """What a program has printed, for a row of a terminal: of progress bars the last state, of escapes the colours."""
    if line.isprintable() and line.strip():
        return line
    parts = _NOT_COLORS.sub("", line).split("\r")
    harmless = next((part for part in reversed(parts) if _COLORS.sub("", part).strip()), "")
    if not colors:
        return _COLORS.sub("", harmless)
    return _COLORS.sub(rf"{ESC}\1", harmless) + RESET if _COLORS.search(harmless) else harmless


def last(lines: Sequence[str], number: int) -> list[str]:
    """The last lines with anything in them."""
    return [line for line in lines if line.strip()][-number:]
