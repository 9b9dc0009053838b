"""Emulation of a terminal: the frames that it shows during a recording."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import pyte

from tools.clip.record import Output, Size

_BOLD, _FAINT, _NORMAL, _BLINK, _NO_BLINK = 1, 2, 22, 5, 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """Colours are pyte's names ("red", "brightred", "default") or six hexadecimal digits."""

    foreground: str = "default"
    background: str = "default"
    bold: bool = False
    faint: bool = False
    italic: bool = False
    underlined: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """Adjacent cells of one style. `width` counts cells, of which a wide character has two."""

    column: int
    width: int
    text: str
    style: Style


Line = tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Frame:
    """The lines of a terminal, shown for some seconds."""

    lines: tuple[Line, ...]
    seconds: float


class _Screen(pyte.Screen):  # type: ignore[misc]
    """A screen that stores faint (SGR 2), which pyte ignores, as blink, which no recording uses."""

    def select_graphic_rendition(self, *attributes: int, **options: Any) -> None:
        if not options.get("private"):
            attributes = tuple(code for given in attributes for code in _with_faint(given))
        super().select_graphic_rendition(*attributes, **options)


def _with_faint(code: int) -> tuple[int, ...]:
    if code == _FAINT:
        return (_BLINK,)
    return (_NORMAL, _NO_BLINK) if code == _NORMAL else (code,)


def frames(outputs: Sequence[Output], size: Size, shortest: float) -> Iterator[Frame]:
    """The frames of a recording. Output within `shortest` seconds is one frame, and so are equal frames in sequence."""
    screen = _Screen(size.columns, size.rows)
    stream = pyte.Stream(screen)
    decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
    shown: Frame | None = None
    since = 0.0
    for place, output in enumerate(outputs):
        stream.feed(decode(output.data))
        later = outputs[place + 1].at if place + 1 < len(outputs) else output.at
        if place + 1 < len(outputs) and later - since < shortest:
            continue
        lines = tuple(_line(screen.buffer[row], size.columns) for row in range(size.rows))
        if shown is not None and shown.lines == lines:
            shown = replace(shown, seconds=shown.seconds + later - since)
        else:
            if shown is not None:
                yield shown
            shown = Frame(lines, later - since)
        since = later
    if shown is not None:
        yield shown


def _line(cells: Any, columns: int) -> Line:
    placed = [(column, cells[column]) for column in range(columns)]
    runs = []
    for style, group in groupby(placed, key=lambda cell: _style(cell[1])):
        members = list(group)
        text = "".join(cell.data for _, cell in members)
        if text.strip() or style.background != "default" or style.underlined:
            runs.append(_trimmed(Run(members[0][0], len(members), text, style)))
    return tuple(runs)


def _trimmed(run: Run) -> Run:
    """The run without leading and trailing blanks, unless they have a background."""
    if run.style.background != "default" or run.style.underlined:
        return run
    before, after = len(run.text) - len(run.text.lstrip()), len(run.text) - len(run.text.rstrip())
    return Run(run.column + before, run.width - before - after, run.text.strip(), run.style)


def _style(cell: Any) -> Style:
    front, back = (cell.bg, cell.fg) if cell.reverse else (cell.fg, cell.bg)
    if cell.reverse:
        front, back = ("ground" if front == "default" else front), ("text" if back == "default" else back)
    if not cell.data.strip() and back == "default" and not cell.underscore:
        return Style()
    return Style(
        foreground=front,
        background=back,
        bold=cell.bold,
        faint=cell.blink,
        italic=cell.italics,
        underlined=cell.underscore,
    )


def limit_frame_times(pictures: Sequence[Frame], longest: float, at_the_end: float) -> list[Frame]:
    """Limit the time of each frame to `longest` seconds; the last frame is shown for `at_the_end` seconds."""
    shortened = [replace(picture, seconds=min(picture.seconds, longest)) for picture in pictures]
    return [*shortened[:-1], replace(shortened[-1], seconds=at_the_end)]


def type_command(text: str, size: Size, seconds_a_key: float) -> list[Output]:
    """Output that shows a prompt and a command typed key by key, to put before a recording."""
    prompt = Output(0.0, b"\x1b[2m$\x1b[0m ")
    keys = [Output(0.6 + place * seconds_a_key, key.encode()) for place, key in enumerate(text[: size.columns - 3])]
    return [prompt, *keys, Output(1.0 + len(keys) * seconds_a_key, b"\r\n")]
