"""`ExponentialBackoff`: exponential backoff for requests to a failing server."""

from __future__ import annotations

import random

from tarragon.base.clock import Clock

INITIAL_DELAY = 0.8
MAX_DELAY = 30.0
RESET_AFTER = 120.0
"""Seconds without a failure after which the backoff is reset."""


class ExponentialBackoff:
    """Exponential backoff with jitter. It resets after `RESET_AFTER` seconds without a failure."""

    def __init__(self, clock: Clock, jitter: random.Random) -> None:
        self._clock = clock
        self._jitter = jitter
        self._next = INITIAL_DELAY
        self._last_pause_end = -RESET_AFTER

    def next_delay(self, longest: float, *, at_least: float = 0.0) -> float:
        """The seconds to wait now: from half to all of the step, so that clients do not return all at once."""
        now = self._clock.monotonic()
        if now - self._last_pause_end > RESET_AFTER:
            self._next = INITIAL_DELAY
        step = min(self._next, longest)
        self._next = min(step * 2, MAX_DELAY)
        pause = max(step * (0.5 + self._jitter.random() / 2), at_least)
        self._last_pause_end = now + pause
        return pause
