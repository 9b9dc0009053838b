"""Drawing of frames as an animated SVG: CSS moves a strip of frames past a window, without scripts and fonts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import accumulate

from tools.clip.record import Size
from tools.clip.screen import Frame, Line, Run, Style

_CELL_WIDTH, _CELL_HEIGHT, _BASELINE = 8.4, 18, 13
_MARGIN, _BAR = 14, 34
_FONT = "ui-monospace,SFMono-Regular,'SF Mono',Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace"

# Name of a colour -> (on a light ground, on a dark ground).
_COLOURS = {
    "default": ("#24292f", "#d7dce2"),
    "text": ("#24292f", "#d7dce2"),
    "ground": ("#ffffff", "#161b22"),
    "black": ("#24292f", "#59636e"),
    "red": ("#cf222e", "#ff7b72"),
    "green": ("#116329", "#56d364"),
    "brown": ("#7d4e00", "#e3b341"),
    "blue": ("#0550ae", "#79c0ff"),
    "magenta": ("#8250df", "#d2a8ff"),
    "cyan": ("#1b7c83", "#56d4dd"),
    "white": ("#57606a", "#c9d1d9"),
    "brightblack": ("#6e7781", "#8b949e"),
    "brightred": ("#a40e26", "#ffa198"),
    "brightgreen": ("#1a7f37", "#7ee787"),
    "brightbrown": ("#633c01", "#f2cc60"),
    "brightblue": ("#0969da", "#a5d6ff"),
    "bfightmagenta": ("#6639ba", "#e2c5ff"),  # pyte's own spelling
    "brightmagenta": ("#6639ba", "#e2c5ff"),
    "brightcyan": ("#3192aa", "#b3f0ff"),
    "brightwhite": ("#24292f", "#f0f6fc"),
}


@dataclass(slots=True)
class _Classes:
    """Short CSS class names for the styles and colours that occur."""

    names: dict[str, str] = field(default_factory=dict)

    def of(self, rule: str) -> str:
        return self.names.setdefault(rule, f"s{len(self.names)}")


def draw(pictures: Sequence[Frame], size: Size, title: str) -> str:
    """An SVG that repeats for ever; readers who prefer reduced motion see only its last frame."""
    classes = _Classes()
    lines: dict[Line, str] = {}
    strip = "".join(_frame(picture, place, lines) for place, picture in enumerate(pictures))
    definitions = "".join(
        f'<g id="{name}">{"".join(_run(run, classes) for run in line)}</g>' for line, name in lines.items()
    )
    width, height = size.columns * _CELL_WIDTH + 2 * _MARGIN, size.rows * _CELL_HEIGHT + _BAR + _MARGIN
    dots = "".join(f'<circle cx="{18 + 18 * place}" cy="17" r="5.5" class="dot"/>' for place in range(3))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" width="{width:g}" '
        f'height="{height}" role="img" aria-label="{escape(title)}" xml:space="preserve">'
        f"<title>{escape(title)}</title><style>{_style_sheet(pictures, classes, size)}</style>"
        f"<defs>{definitions}</defs>"
        f'<rect class="window" x=".5" y=".5" width="{width - 1:g}" height="{height - 1}" rx="8"/>{dots}'
        f'<svg x="{_MARGIN}" y="{_BAR}" width="{size.columns * _CELL_WIDTH:g}" height="{size.rows * _CELL_HEIGHT}">'
        f'<g class="strip">{strip}</g></svg></svg>\n'
    )


def _frame(picture: Frame, place: int, lines: dict[Line, str]) -> str:
    """References to the lines of a frame. Each different line is drawn once, in <defs>."""
    uses = []
    for row, line in enumerate(picture.lines):
        if line:
            name = lines.setdefault(line, f"l{len(lines)}")
            uses.append(f'<use href="#{name}" y="{(place * len(picture.lines) + row) * _CELL_HEIGHT}"/>')
    return "".join(uses)


def _run(run: Run, classes: _Classes) -> str:
    x, width = f"{run.column * _CELL_WIDTH:g}", f"{run.width * _CELL_WIDTH:g}"
    ground = ""
    if run.style.background != "default":
        name = classes.of(_fill(run.style.background))
        ground = f'<rect x="{x}" width="{width}" height="{_CELL_HEIGHT}" class="{name}"/>'
    if not run.text.strip() and not run.style.underlined:
        return ground
    # textLength aligns columns with any font.
    length = f' textLength="{width}"' if run.width > 1 else ""
    name = classes.of(_text_rule(run.style))
    return f'{ground}<text x="{x}" y="{_BASELINE}"{length} class="{name}">{escape(run.text, quote=False)}</text>'


def _fill(colour: str) -> str:
    return f"fill:{colour if colour in _COLOURS else '#' + colour}"


def _text_rule(style: Style) -> str:
    rules = [_fill(style.foreground)]
    rules += ["font-weight:bold"] * style.bold
    rules += ["opacity:.62"] * style.faint
    rules += ["font-style:italic"] * style.italic
    rules += ["text-decoration:underline"] * style.underlined
    return ";".join(rules)


def _style_sheet(pictures: Sequence[Frame], classes: _Classes, size: Size) -> str:
    starts = [0.0, *accumulate(picture.seconds for picture in pictures)]
    total, picture_height = starts[-1], size.rows * _CELL_HEIGHT
    moves = "".join(
        f"{100 * start / total:.3f}%{{transform:translateY({-place * picture_height}px)}}"
        for place, start in enumerate(starts[:-1])
    )
    still = f"transform:translateY({-(len(pictures) - 1) * picture_height}px)"
    return (
        f"text{{font:14px {_FONT};white-space:pre}}"
        f".strip{{animation:play {total:.2f}s step-end infinite}}@keyframes play{{{moves}}}"
        f"{_themed(classes, dark=False)}@media(prefers-color-scheme:dark){{{_themed(classes, dark=True)}}}"
        f"@media(prefers-reduced-motion:reduce){{.strip{{animation:none;{still}}}}}"
    )


def _themed(classes: _Classes, *, dark: bool) -> str:
    def in_theme(rule: str) -> str:
        colour, *rest = rule.removeprefix("fill:").split(";")
        return ";".join([f"fill:{_COLOURS[colour][dark] if colour in _COLOURS else colour}", *rest])

    window, edge, dot = ("#161b22", "#30363d", "#484f58") if dark else ("#ffffff", "#d0d7de", "#d0d7de")
    return f".window{{fill:{window};stroke:{edge}}}.dot{{fill:{dot}}}" + "".join(
        f".{name}{{{in_theme(rule)}}}" for rule, name in classes.names.items()
    )
