"""Long lines as rows of a terminal, with their colours. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from tarragon.base.escaping import ESC, escaped
from tarragon.cli.output.style import RESET, STYLE

INDENT = "    "
"""Before what is still the same line."""
_PIECES = re.compile(f"{STYLE.pattern}|.", re.DOTALL)


def wrapped(line: str, width: int) -> Iterator[str]:
    """At least one row. They break between words where there are some, and a colour goes on in the next row."""
    text = escaped(line.expandtabs(8))
    if text.isascii() and text.isprintable() and len(text) <= width:
        yield text
        return
    row = _Row()
    for piece in _PIECES.findall(text):
        if piece.startswith(ESC):
            row.paint(piece)
            continue
        if row.used + cell_width(piece) > width:
            yield row.cut(width)
        row.put(piece)
    yield "".join(row.pieces)


class _Row:
    """Of pieces: characters, and colours that take no room."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.used = 0
        self._color = ""

    def paint(self, piece: str) -> None:
        self._color = "" if piece in {RESET, f"{ESC}[m"} else self._color + piece
        self.pieces.append(piece)

    def put(self, piece: str) -> None:
        self.pieces.append(piece)
        self.used += cell_width(piece)

    def cut(self, width: int) -> str:
        """The row as it is; what comes after its last word begins the next one."""
        text = "".join(self.pieces)
        head, space, rest = text.rpartition(" ")
        breaks = bool(space) and ESC not in rest and cell_width(rest) <= width // 3 and bool(head.strip())
        kept, rest = (head, rest) if breaks else (text, "")
        self.pieces = [INDENT, self._color, *rest]
        self.used = len(INDENT) + cell_width(rest)
        return kept + (RESET if self._color else "")


@lru_cache(maxsize=4096)
def cell_width(text: str) -> int:
    """Columns that a text takes: two for many characters of Asia."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
