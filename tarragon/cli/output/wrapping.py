"""Wraps long lines into rows of a terminal and keeps their colours. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from tarragon.base.escaping import STYLE_ESCAPE, escaped
from tarragon.cli.output.style import ESCAPES, RESET, without_colors

INDENT = "    "
"""The indentation of continuation rows."""
_MARGIN = re.compile(rf" *(?:{ESCAPES.pattern})?│(?:{ESCAPES.pattern})? ")
"""Of quoted output, such as a traceback: continuation rows have it, too."""
_PIECES = re.compile(f"{ESCAPES.pattern}|.", re.DOTALL)


def wrap(line: str, width: int) -> Iterator[str]:
    """Yields at least one row. Rows break between words if possible, and continue the colour of the row before."""
    text = escaped(line.expandtabs(8))
    if text.isascii() and text.isprintable() and len(text) <= width:
        yield text
        return
    row = _Row(_continuation_indent(text))
    for piece in _PIECES.findall(text):
        if piece.startswith(STYLE_ESCAPE):
            row.paint(piece)
            continue
        if row.used + cell_width(piece) > width:
            yield row.cut(width)
        row.put(piece)
    yield "".join(row.pieces)


def _continuation_indent(text: str) -> str:
    margin = _MARGIN.match(text)
    return f"{margin[0]}  " if margin else INDENT


class _Row:
    """A row of pieces: characters, and colour escapes, which have no width. The rows after it begin with `indent`."""

    def __init__(self, indent: str) -> None:
        self._indent = indent
        self.pieces: list[str] = []
        self.used = 0
        self._color = ""

    def paint(self, piece: str) -> None:
        self._color = "" if piece in {RESET, f"{STYLE_ESCAPE}[m"} else self._color + piece
        self.pieces.append(piece)

    def put(self, piece: str) -> None:
        self.pieces.append(piece)
        self.used += cell_width(piece)

    def cut(self, width: int) -> str:
        """Returns the row up to its last word break; the rest begins the next row."""
        text = "".join(self.pieces)
        head, space, rest = text.rpartition(" ")
        breaks = bool(space) and STYLE_ESCAPE not in rest and cell_width(rest) <= width // 3 and bool(head.strip())
        kept, rest = (head, rest) if breaks else (text, "")
        self.pieces = [self._indent, self._color, *rest]
        self.used = cell_width(without_colors(self._indent)) + cell_width(rest)
        return kept + (RESET if self._color else "")


@lru_cache(maxsize=4096)
def cell_width(text: str) -> int:
    """Returns the columns that a text takes: two for wide East Asian characters."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
