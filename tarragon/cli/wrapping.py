"""Long lines as rows of a terminal, with their colours. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from tarragon.cli.follow.lines import shown

INDENT = "    "
"""Before what is still the same line."""
_PIECES = re.compile(r"\x1b\[[0-9;]*m|[^\x1b]")
_RESET = "\x1b[0m"


def wrapped(line: str, width: int, *, colors: bool) -> Iterator[str]:
    """At least one row. They break between words where there are some, and a colour goes on in the next row."""
    text = shown(line.expandtabs(8), colors=colors)
    if text.isascii() and text.isprintable() and len(text) <= width:
        yield text
        return
    row = _Row()
    for piece in _PIECES.findall(text):
        if piece.startswith("\x1b"):
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
        self._color = "" if piece in {_RESET, "\x1b[m"} else self._color + piece
        self.pieces.append(piece)

    def put(self, piece: str) -> None:
        self.pieces.append(piece)
        self.used += cell_width(piece)

    def cut(self, width: int) -> str:
        """The row as it is; what comes after its last word begins the next one."""
        text = "".join(self.pieces)
        head, space, rest = text.rpartition(" ")
        breaks = bool(space) and "\x1b" not in rest and cell_width(rest) <= width // 3 and bool(head.strip())
        kept, rest = (head, rest) if breaks else (text, "")
        self.pieces = [INDENT, self._color, *rest]
        self.used = len(INDENT) + cell_width(rest)
        return kept + (_RESET if self._color else "")


@lru_cache(maxsize=4096)
def cell_width(text: str) -> int:
    """Columns that a text takes: two for many characters of Asia."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
