"""Lays out a table in the width of a terminal; the last column gets the remaining width. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tarragon.base.escaping import escaped_line
from tarragon.cli.output.style import Paint
from tarragon.cli.output.wrapping import cell_width

GAP = 2
MIN_FIRST_COLUMN = 12
"""Minimum width of the first column, which shrinks when there is not enough room."""

Color = Callable[[str], str]


def no_color(_: str) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column. Its `min_width` keeps it from moving as rows change; `color` returns the color of a cell."""

    title: str
    min_width: int = 0
    max_width: int = 40
    color: Color = no_color


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row. `is_selected`: it is selected in its panel; `is_focused`: the panel has the focus, too."""

    cells: Sequence[str]
    is_selected: bool = False
    is_focused: bool = False


def column_widths(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> Sequence[int]:
    """Return the widths of the columns that fit: the first one shrinks, the last one gets the remaining width."""
    found = _needed_widths(columns, rows)
    excess = sum(found) + GAP * len(found) - width
    found[0] = max(min(MIN_FIRST_COLUMN, found[0]), found[0] - max(0, excess))
    room = width - GAP
    result: list[int] = []
    for needed in found:
        if room < min(needed, MIN_FIRST_COLUMN):
            return result
        result.append(min(needed, room))
        room -= result[-1] + GAP
    result[-1] += max(0, room + GAP)
    return result


def remaining_width(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> int:
    """Return the width that the last column gets if no other one shrinks."""
    return width - sum(_needed_widths(columns, rows)[:-1]) - GAP * len(columns)


def _needed_widths(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    found = [
        min(column.max_width, max([len(column.title), column.min_width, *(cell_width(row[place]) for row in rows)]))
        for place, column in enumerate(columns)
    ]
    return [*found[:-1], max(len(columns[-1].title), columns[-1].min_width)]


def render_table(columns: Sequence[Column], lines: Sequence[TableRow], width: int, paint: Paint) -> list[str]:
    """Render the titles and the rows, at most as wide as the terminal. The selected row has a marker and a color."""
    room = column_widths(columns, [line.cells for line in lines], width)
    titles = paint(_plain([column.title for column in columns], room, "  ").rstrip(), "dim")
    return [titles, *(_row(columns, line, room, paint) for line in lines)]


def _row(columns: Sequence[Column], line: TableRow, room: Sequence[int], paint: Paint) -> str:
    mark = "> " if line.is_selected else "  "
    if line.is_focused:
        return paint(_plain(line.cells, room, mark), "reverse")
    texts = [
        paint(text.rstrip(), column.color(cell)) + " " * (cell_width(text) - cell_width(text.rstrip()))
        for column, cell, text in zip(columns, line.cells, _fitted(line.cells, room), strict=False)
    ]
    return (mark + (" " * GAP).join(texts)).rstrip()


def _plain(cells: Sequence[str], room: Sequence[int], mark: str) -> str:
    return mark + (" " * GAP).join(_fitted(cells, room))


def _fitted(cells: Sequence[str], room: Sequence[int]) -> list[str]:
    return [pad_or_cut(cell, width) for cell, width in zip(cells, room, strict=False)]


def pad_or_cut(text: str, width: int) -> str:
    """Pad or cut the text to exactly `width` columns; a cut text ends in `…`."""
    text = escaped_line(text)
    needed = cell_width(text)
    if needed <= width:
        return text + " " * (width - needed)
    return _cut(text, width - 1) + "…" if width > 0 else ""


def _cut(text: str, width: int) -> str:
    from rich.cells import set_cell_size

    return text[:width] if text.isascii() else set_cell_size(text, width)
