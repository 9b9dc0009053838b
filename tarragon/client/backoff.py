"""`Pauses`: exponential backoff for requests to a failing server."""

from __future__ import annotations

import random

from tarragon.base.clock import Clock

FIRST_PAUSE = 0.8
LONGEST_PAUSE = 30.0
QUIET = 120.0
"""Seconds without a failure after which the backoff is reset."""


class Pauses:
    """Exponential backoff with jitter. It resets after `QUIET` seconds without a failure."""

    def __init__(self, clock: Clock, jitter: random.Random) -> None:
        self._clock = clock
        self._jitter = jitter
        self._next = FIRST_PAUSE
        self._last_pause_end = -QUIET

    def next(self, longest: float, *, at_least: float = 0.0) -> float:
        """The seconds to wait now: from half to all of the step, so that clients do not return all at once."""
        now = self._clock.monotonic()
        if now - self._last_pause_end > QUIET:
            self._next = FIRST_PAUSE
        step = min(self._next, longest)
        self._next = min(step * 2, LONGEST_PAUSE)
        pause = max(step * (0.5 + self._jitter.random() / 2), at_least)
        self._last_pause_end = now + pause
        return pause
