"""The progress bar of a simulation: on a terminal only, on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from tarragon.cli.options.settings import GlobalOptions
from tarragon.cli.output.screen import LiveRows

STEPS = 100
"""How often a bar is drawn until it is full."""
_WIDTH = 30

Advance = Callable[[], None]


@contextmanager
def progress_bar(policy: str, jobs: int, settings: GlobalOptions) -> Iterator[Advance]:
    """Show how many of the jobs have ended; the function that is yielded counts one more."""
    if not settings.terminal().is_live:
        yield lambda: None
        return
    bar = Bar(policy, jobs, sys.stderr)
    try:
        yield bar.advance
    finally:
        bar.clear()


class Bar:
    def __init__(self, policy: str, jobs: int, err: TextIO) -> None:
        self._policy, self._jobs, self._ended = policy, jobs, 0
        self._rows = LiveRows(err, err)
        self._rows.show([self._row()])

    def advance(self) -> None:
        self._ended += 1
        if self._ended % max(1, self._jobs // STEPS) == 0:
            self._rows.show([self._row()])

    def clear(self) -> None:
        self._rows.clear()

    def _row(self) -> str:
        full = self._ended * _WIDTH // self._jobs
        return f"{self._policy} {'█' * full}{'░' * (_WIDTH - full)} {self._ended:,}/{self._jobs:,} jobs"
