"""What an operator has begun and not ended, so that somebody outside can see that it hangs."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from tarragon.base.clock import Clock

LONGEST_WORK = 600.0
"""Seconds. Of one piece of work: a step of five hundred pods, each call of which the slowest server still answers."""
LONGEST_PAUSE = 60.0
"""Seconds without a beginning, while there is something to begin and somebody free to do it."""


class Watchdog:
    """Works on the event loop, like everything that it watches: a loop that is stuck can't even be asked."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began: dict[Hashable, float] = {}
        self._last_begin = clock.monotonic()

    @property
    def at_work(self) -> int:
        return len(self._began)

    def start(self) -> None:
        """From now on it is expected that work begins."""
        self._last_begin = self._clock.monotonic()

    @contextmanager
    def work(self, name: Hashable) -> Iterator[None]:
        """One piece of work of that name at a time."""
        self._began[name] = self._last_begin = self._clock.monotonic()
        try:
            yield
        finally:
            del self._began[name]

    def hanging(self) -> Iterator[str]:
        """Work that should have ended long ago."""
        now = self._clock.monotonic()
        for name, began in self._began.items():
            if now - began > LONGEST_WORK:
                yield f"{name}: at it for {now - began:.0f} s"

    def idle_since(self, due: float | None) -> float:
        """Seconds in which nothing began although the first was due at that time; 0 when nothing was."""
        if due is None:
            return 0.0
        return max(0.0, self._clock.monotonic() - max(due, self._last_begin))
