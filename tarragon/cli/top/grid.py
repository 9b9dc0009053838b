"""Cells under their titles in so many columns of a terminal; the last column has what is left. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tarragon.base.escaping import escaped_line
from tarragon.cli.output.style import Paint
from tarragon.cli.output.wrapping import cell_width

GAP = 2
NARROWEST = 12
"""Of the first column, which gives way when there is no room for all."""

Color = Callable[[str], str]


def no_color(_: str) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Column:
    """`least` keeps columns from jumping while rows come and go; `color` is that of a cell, by its text."""

    title: str
    least: int = 0
    most: int = 40
    color: Color = no_color


@dataclass(frozen=True, slots=True)
class Line:
    """One row, whether it is the chosen one of its panel, and whether that is the panel the keys are about."""

    cells: Sequence[str]
    is_chosen: bool = False
    is_lit: bool = False


def widths(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> Sequence[int]:
    """Of the columns that there is room for: the first gives way, the last gets what is left."""
    found = [
        min(column.most, max([len(column.title), column.least, *(cell_width(row[place]) for row in rows)]))
        for place, column in enumerate(columns)
    ]
    found[-1] = len(columns[-1].title)
    too_much = sum(found) + GAP * len(found) - width
    found[0] = max(min(NARROWEST, found[0]), found[0] - max(0, too_much))
    room = width - GAP
    result: list[int] = []
    for needed in found:
        if room < min(needed, NARROWEST):
            return result
        result.append(min(needed, room))
        room -= result[-1] + GAP
    result[-1] += max(0, room + GAP)
    return result


def drawn(columns: Sequence[Column], lines: Sequence[Line], width: int, paint: Paint) -> list[str]:
    """The titles and the rows, each as wide as the terminal at most. The chosen one has a mark, not only a colour."""
    room = widths(columns, [line.cells for line in lines], width)
    titles = paint(_plain([column.title for column in columns], room, "  ").rstrip(), "dim")
    return [titles, *(_row(columns, line, room, paint) for line in lines)]


def _row(columns: Sequence[Column], line: Line, room: Sequence[int], paint: Paint) -> str:
    mark = "> " if line.is_chosen else "  "
    if line.is_lit:
        return paint(_plain(line.cells, room, mark), "reverse")
    texts = [
        paint(text.rstrip(), column.color(cell)) + " " * (cell_width(text) - cell_width(text.rstrip()))
        for column, cell, text in zip(columns, line.cells, _fitted(line.cells, room), strict=False)
    ]
    return (mark + (" " * GAP).join(texts)).rstrip()


def _plain(cells: Sequence[str], room: Sequence[int], mark: str) -> str:
    return mark + (" " * GAP).join(_fitted(cells, room))


def _fitted(cells: Sequence[str], room: Sequence[int]) -> list[str]:
    return [fitted(cell, width) for cell, width in zip(cells, room, strict=False)]


def fitted(text: str, width: int) -> str:
    """Exactly so many columns; what does not fit ends in `…`."""
    text = escaped_line(text)
    needed = cell_width(text)
    if needed <= width:
        return text + " " * (width - needed)
    return _cut(text, width - 1) + "…" if width > 0 else ""


def _cut(text: str, width: int) -> str:
    from rich.cells import set_cell_size

    return text[:width] if text.isascii() else set_cell_size(text, width)
