"""Draws charts as SVG: two axes, lines, areas and bars. Colours come from the style of the page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 860.0, 300.0
LEFT, RIGHT, TOP, BOTTOM = 64.0, 12.0, 10.0, 34.0
COLOURS = (
    *("#4e79a7", "#f28e2b", "#e15759", "#59a14f", "#b07aa1", "#76b7b2"),
    *("#edc948", "#ff9da7", "#9c755f", "#6b7fd7", "#8cd17d", "#d37295"),
)
"""They are told apart on white and on black."""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Axis:
    """From the lowest to the highest value; the ticks are values with what is written there."""

    low: float
    high: float
    ticks: Sequence[tuple[float, str]]

    def part(self, value: float) -> float:
        return (value - self.low) / ((self.high - self.low) or 1.0)


@dataclass(frozen=True, slots=True)
class LogAxis(Axis):
    def part(self, value: float) -> float:
        low, high = math.log10(self.low), math.log10(self.high)
        return (math.log10(max(value, self.low)) - low) / ((high - low) or 1.0)


@dataclass(frozen=True, slots=True)
class Chart:
    across: Axis
    up: Axis
    height: float = HEIGHT

    def line(self, points: Sequence[Point], colour: str, title: str) -> str:
        shape = f'points="{self._path(points)}" fill="none" stroke="{colour}" stroke-width="1.8"'
        return f"<polyline {shape}>{_title(title)}</polyline>"

    def area(self, points: Sequence[Point], colour: str, title: str) -> str:
        return f'<polygon points="{self._path(points)}" fill="{colour}">{_title(title)}</polygon>'

    def bar(self, corner: Point, opposite: Point, colour: str, title: str) -> str:
        (left, bottom), (right, top) = self._at(corner), self._at(opposite)
        size = f'width="{max(0.5, right - left):.1f}" height="{max(0.4, bottom - top):.1f}"'
        return f'<rect x="{left:.1f}" y="{top:.1f}" {size} fill="{colour}">{_title(title)}</rect>'

    def drawn(self, label: str, content: Iterable[str]) -> str:
        box = f'viewBox="0 0 {WIDTH:.0f} {self.height:.0f}" role="img" aria-label="{escape(label)}"'
        return f"<svg {box}>{''.join(self._grid())}{''.join(content)}</svg>"

    def _grid(self) -> Iterable[str]:
        for value, text in self.across.ticks:
            x, y = self._at((value, self.up.low))
            yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP:.0f}" y2="{y:.1f}"/>'
            yield f'<text x="{x:.1f}" y="{y + 18:.1f}" text-anchor="middle">{escape(text)}</text>'
        for value, text in self.up.ticks:
            x, y = self._at((self.across.low, value))
            yield f'<line class="grid" x1="{x:.1f}" x2="{WIDTH - RIGHT:.0f}" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield f'<text x="{x - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{escape(text)}</text>'

    def _path(self, points: Sequence[Point]) -> str:
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in map(self._at, points))

    def _at(self, point: Point) -> Point:
        x, y = self.across.part(point[0]), self.up.part(point[1])
        return LEFT + x * (WIDTH - LEFT - RIGHT), TOP + (1 - y) * (self.height - TOP - BOTTOM)


def steps_of(high: float) -> Sequence[float]:
    """Return round values from 0 on, about five of them."""
    rough = max(high, 1e-9) / 5
    power: float = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    return [step * index for index in range(math.floor(high / step) + 1)]


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>"
