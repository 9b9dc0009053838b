"""Wraps long lines into rows of a terminal and keeps their colours. Pure.

`wrap` fills a box on the screen, so no row is wider. `wrap_prose` is for what scrolls by and is copied from there: it
breaks between words alone, and never in a command.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from tarragon.base.escaping import STYLE_ESCAPE, escaped
from tarragon.cli.output.style import ESCAPES, RESET, without_colors
from tarragon.cli.output.words import aligned

UNBOUNDED = sys.maxsize
"""The width of what is no terminal."""
INDENT = "    "
"""The indentation of continuation rows."""
MIN_SENTENCES_WIDTH = 36
"""Characters of a table's last column in which sentences can be read."""
_MARGIN = re.compile(rf" *(?:{ESCAPES.pattern})?│(?:{ESCAPES.pattern})? ")
"""Of quoted output, such as a traceback: continuation rows have it, too."""
_MARKS = re.compile(r"[ ~]*\^[ ~^]*")
"""The line by which Python shows what it means in the line of code above."""
_PROGRAM = r"(?:\S*/)?(?:tarragon|kubectl|helm|pip|uv|export|python[\d.]*)"
_SUBCOMMANDS = (
    "run|submit|init|validate|list|top|get|describe|why|wait|logs|suspend|resume|scale|delete|up|down|kubeconfig|check|"
    "operator|node|convert|diff|simulate|export-trace|debug-dump|examples|docs|config|version|completion|help|tarragon|"
    "annotate|apply|auth|cordon|cp|create|debug|drain|edit|exec|explain|label|patch|port-forward|replace|rollout|set|"
    "taint|uncordon|install|uninstall|upgrade|template|repo|pip|tool|add|sync"
)
"""Those of tarragon, then those of kubectl, helm, pip and uv: other words behind a program are of a sentence."""
_COMMAND = rf"{_PROGRAM} (?=-|\$\(|\w+=|\S+\.py\b|(?:{_SUBCOMMANDS})(?![\w-]))(?:\$\([^)]*\)|[^;,()`])+"
_UNBREAKABLE = re.compile(rf"`[^`]+`|(?:(?<=[:;] )|(?<=^)|(?<=  )){_COMMAND}")
"""A command, in backquotes or behind a colon, up to the end of its clause: in two rows, it can't be copied."""
_GLUE = "\0"
"""Stands for a space that is no place for a break. Escaped text has none."""
_COLUMNS = re.compile(r"\S {3}")
"""Between the columns of a table, of which the rows stay what they are."""
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


def wrap_prose(line: str, width: int, indent: str | None = None) -> Iterator[str]:
    """Yields the rows of a sentence, broken between words. Colours continue; rows of tables stay whole.

    A path, a command or another word that is wider than the terminal has a row of its own, and is not cut: so the
    terminal continues it, and what is copied is whole. `indent` is that of all rows but the first. Without a bound of
    the width the line stays as it is, its tabs too.
    """
    if width > UNBOUNDED // 2:  # what is left of it beside an indentation, too
        yield line
        return
    text = escaped(line.expandtabs(8))
    plain = without_colors(text)
    if cell_width(plain.rstrip()) <= width or (indent is None and _is_row_of_table(plain)):
        yield text.rstrip()
        return
    head = _head(text)
    below = _prose_indent(head, width) if indent is None else indent
    row, color, used = head, "", cell_width(without_colors(head))
    is_begun = False
    for word in _words(text[len(head) :].rstrip()):
        needed = cell_width(without_colors(word))
        if is_begun and needed and used + needed > width:
            yield row.rstrip().replace(_GLUE, " ") + (RESET if color else "")
            row, used = below + color, cell_width(without_colors(below))
        row, used = f"{row}{word} ", used + needed + 1
        color = _color_after(color, word)
        is_begun = is_begun or needed > 0
    yield row.rstrip().replace(_GLUE, " ")


def wrap_lines(lines: Iterable[str], width: int) -> Iterator[str]:
    """Yields the rows of sentences and of quoted output. In a traceback, marks stay below the code that they mark."""
    code = ""
    for line in lines:
        if code and _MARKS.fullmatch(_quoted(line)):
            yield from _marked(code, line, width)
            code = ""
            continue
        if code:
            yield from wrap_prose(code, width)
        code = line if _MARGIN.match(line) and cell_width(without_colors(line).rstrip()) > width else ""
        if not code:
            yield from wrap_prose(line, width)
    if code:
        yield from wrap_prose(code, width)


def _marked(code: str, marks: str, width: int) -> Iterator[str]:
    """Yields the rows of quoted code, each above those of its marks that are not blank."""
    margin = _margin(marks)
    quoted, all_marks, at = _quoted(code), _quoted(marks), 0
    for row in wrap_prose(code, width):
        yield row
        shown = _quoted(row)
        text = shown.strip()
        at = quoted.index(text, at)
        own = all_marks[at : at + len(text)].rstrip()
        at += len(text)
        if own:
            yield f"{margin}{' ' * (len(shown.rstrip()) - len(text))}{own}"


def wrapped_table(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Returns the lines of a table of which the last column has sentences. Where they don't fit, a line has more rows.

    They go on in their column if it has `MIN_SENTENCES_WIDTH`, else all of them are below the other columns.
    """
    cells = aligned([header, *rows])
    lines = ["   ".join(row).rstrip() for row in cells]
    if max(map(cell_width, lines)) <= width:
        return lines
    before = sum(len(cell) + 3 for cell in cells[0][:-1])
    if width - before >= MIN_SENTENCES_WIDTH:
        return ["\n".join(wrap_prose(line, width, " " * before)) for line in lines]
    heads = ["   ".join(row[:-1]).rstrip() for row in cells]
    below = ["\n".join(wrap_prose(f"{INDENT}{row[-1].rstrip()}", width, INDENT)) for row in cells]
    return [heads[0], *(f"{head}\n{text}".rstrip() for head, text in zip(heads[1:], below[1:], strict=True))]


def _is_row_of_table(plain: str) -> bool:
    return not _MARGIN.match(plain) and _COLUMNS.search(plain.lstrip()) is not None


def _words(text: str) -> list[str]:
    return _UNBREAKABLE.sub(lambda found: _glued(found[0]), text).split(" ")


def _glued(text: str) -> str:
    command = text.rstrip(" ")
    return command.replace(" ", _GLUE) + text[len(command) :]


def _head(text: str) -> str:
    """Returns the margin of quoted output, and the spaces at the beginning."""
    margin = _margin(text)
    rest = text[len(margin) :]
    return margin + rest[: len(rest) - len(rest.lstrip(" "))]


def _margin(text: str) -> str:
    found = _MARGIN.match(text)
    return found[0] if found else ""


def _quoted(line: str) -> str:
    """Returns what is behind the margin, as it is shown, without colours; nothing if there is no margin."""
    margin = _margin(line)
    return without_colors(escaped(line.expandtabs(8))[len(margin) :]) if margin else ""


def _prose_indent(head: str, width: int) -> str:
    margin = _margin(head)
    if not margin:
        return " " * max(len(INDENT), len(head) + 2)
    return f"{head}  " if cell_width(without_colors(head)) <= width // 2 else f"{margin}  "


def _color_after(color: str, word: str) -> str:
    """Returns the escapes of the colour in which a row continues after the word."""
    for escape in ESCAPES.findall(word):
        color = "" if escape == RESET else color + escape
    return color


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


def clipped(line: str, width: int) -> str:
    """Returns a line without colours in so many columns: the end of a wider one is `…`."""
    if cell_width(line) <= width:
        return line
    from rich.cells import set_cell_size

    return f"{set_cell_size(line, width - 1).rstrip()}…"


@lru_cache(maxsize=4096)
def cell_width(text: str) -> int:
    """Returns the columns that a text takes: two for wide East Asian characters."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
