"""The rows at the bottom of a terminal that are drawn anew again and again, while other output scrolls by above them.

Not rich's Live: that one prints what goes above its rows to its own stream. Here the logs are results and belong on
stdout, the rows are progress and belong on stderr. The cursor is never hidden: a kill -9 leaves nothing to repair.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from tarragon.base.escaping import ESC
from tarragon.cli.output.style import without_colors
from tarragon.cli.output.terminal import size


class Screen:
    """Rows on `err`. `out` is the same terminal: it may be written to by `above` only."""

    def __init__(self, err: TextIO, out: TextIO) -> None:
        self._err = err
        self._out = out
        self._rows: Sequence[str] = ()

    def show(self, rows: Sequence[str]) -> None:
        """Draw these in place of the rows before."""
        self._err.write(self._erased() + "\n".join(rows))
        self._err.flush()
        self._rows = rows

    def above(self, text: str) -> None:
        """Let whole lines, each with its end, scroll by above the rows."""
        self._err.write(self._erased())
        self._err.flush()
        self._out.write(text)
        self._out.flush()
        self._err.write("\n".join(self._rows))
        self._err.flush()

    def clear(self) -> None:
        """Take the rows away: what is written next begins where they began."""
        self.show(())

    def _erased(self) -> str:
        """Goes back to the first column of the first row. A terminal that became narrower has wrapped the rows."""
        if not self._rows:
            return ""
        width = size(self._err).columns
        lines = sum(max(1, -(-len(without_colors(row)) // width)) for row in self._rows)
        return f"{ESC}[G" + (f"{ESC}[{lines - 1}A" if lines > 1 else "") + f"{ESC}[J"
