"""Rows at the bottom of a terminal that are redrawn in place, while other output scrolls above them.

rich's Live does not serve here: it prints the output above its rows to its own stream, but logs belong on stdout and
progress on stderr. The cursor is never hidden, so a kill -9 leaves the terminal usable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from tarragon.base.escaping import STYLE_ESCAPE
from tarragon.cli.output.style import without_colors
from tarragon.cli.output.terminal import size


class LiveRows:
    """Rows on `err`. `out` is the same terminal: write to it with `print_above` only."""

    def __init__(self, err: TextIO, out: TextIO) -> None:
        self._err = err
        self._out = out
        self._rows: Sequence[str] = ()

    def show(self, rows: Sequence[str]) -> None:
        """Draws these rows in place of the rows before."""
        self._err.write(self._erasure() + "\n".join(rows))
        self._err.flush()
        self._rows = rows

    def print_above(self, text: str) -> None:
        """Prints complete lines, with their newlines, above the rows."""
        self._err.write(self._erasure())
        self._err.flush()
        self._out.write(text)
        self._out.flush()
        self._err.write("\n".join(self._rows))
        self._err.flush()

    def clear(self) -> None:
        """Removes the rows: the next output begins where they began."""
        self.show(())

    def _erasure(self) -> str:
        """Returns the escapes that erase the rows, also if they wrapped because the terminal became narrower."""
        if not self._rows:
            return ""
        width = size(self._err).columns
        lines = sum(max(1, -(-len(without_colors(row)) // width)) for row in self._rows)
        return f"{STYLE_ESCAPE}[G" + (f"{STYLE_ESCAPE}[{lines - 1}A" if lines > 1 else "") + f"{STYLE_ESCAPE}[J"
