"""A scrollable text view in place of the page: the output of a command, as it arrives."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from tarragon.cli.output.log_lines import terminal_text
from tarragon.cli.output.style import Paint
from tarragon.cli.output.wrapping import wrap
from tarragon.cli.top.page import key_help
from tarragon.cli.top.table import pad_or_cut
from tarragon.cli.top.view import Frame

MAX_ROWS = 10_000
"""The most rows that are kept; for older ones, run the command at a prompt."""
_KEYS = (("↑↓", "line"), ("space", "page"), ("g", "top"), ("G", "end"), ("esc", "back"))


_FAR = 10**9
_STEPS: Mapping[str, Callable[[int, int], int]] = MappingProxyType(
    {
        "up": lambda first, _: first - 1,
        "k": lambda first, _: first - 1,
        "down": lambda first, _: first + 1,
        "j": lambda first, _: first + 1,
        "enter": lambda first, _: first + 1,
        "pageup": lambda first, page: first - page,
        "b": lambda first, page: first - page,
        "pagedown": lambda first, page: first + page,
        " ": lambda first, page: first + page,
        "home": lambda _, __: 0,
        "g": lambda _, __: 0,
        "end": lambda _, __: _FAR,
        "G": lambda _, __: _FAR,
    }
)
"""Key -> a function from the first visible row and the rows of a page to the new first visible row."""


class Pager:
    """A pager. At its end it follows new lines until the user scrolls up; `begins_at_end` starts it there."""

    def __init__(self, title: str, *, begins_at_end: bool, colors: bool) -> None:
        self.title = title
        self.is_complete = False
        self._is_at_end = begins_at_end
        self._colors = colors
        self._lines: deque[str] = deque(maxlen=MAX_ROWS)
        self._rows: deque[str] = deque(maxlen=MAX_ROWS)
        self._width = 0
        self._first = 0
        self._room = 1

    def add(self, lines: Sequence[str]) -> None:
        self._lines.extend(lines)
        for line in lines:
            self._wrap(line)

    def press(self, key: str) -> bool:
        """Handle a key; False if it closes the view."""
        if key in {"esc", "q", "backspace", "left"}:
            return False
        step = _STEPS.get(key)
        if step is not None:
            last = max(0, len(self._rows) - self._room)
            self._first = max(0, min(last, step(last if self._is_at_end else self._first, self._room - 1)))
            self._is_at_end = self._first == last and last > 0
        return True

    def render(self, frame: Frame, paint: Paint) -> list[str]:
        """Return exactly as many rows as the terminal has."""
        if frame.width != self._width:
            self._width = frame.width
            self._rows.clear()
            for line in self._lines:
                self._wrap(line)
        self._room = max(1, frame.height - 2)
        last = max(0, len(self._rows) - self._room)
        self._first = last if self._is_at_end else min(self._first, last)
        rows = [self._rows[place] for place in range(self._first, min(self._first + self._room, len(self._rows)))]
        if not rows:
            rows = ["  No output." if self.is_complete else "  …"]
        rows += [""] * (self._room - len(rows))
        return [paint(pad_or_cut(self.title, frame.width), "bold"), *rows, self._foot(frame, paint, last)]

    def _foot(self, frame: Frame, paint: Paint, last: int) -> str:
        place = "all" if not last else "end" if self._first == last else f"{100 * self._first // last} %"
        state = place if self.is_complete else f"{place}, live"
        return f"{pad_or_cut(state, 11)} {key_help(_KEYS, frame.width - 12, paint)}"

    def _wrap(self, line: str) -> None:
        if self._width:
            self._rows.extend(wrap(terminal_text(line, colors=self._colors), self._width))
