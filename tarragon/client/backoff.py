"""`Pauses`: how long to wait before a server that fails is asked again."""

from __future__ import annotations

import random

from tarragon.base.clock import Clock

FIRST_PAUSE = 0.8
LONGEST_PAUSE = 30.0
QUIET = 120.0
"""Seconds without trouble after which the next pause is a short one again."""


class Pauses:
    """Back-off: each pause is about twice the one before, until there was quiet for a while."""

    def __init__(self, clock: Clock, jitter: random.Random) -> None:
        self._clock = clock
        self._jitter = jitter
        self._next = FIRST_PAUSE
        self._over = -QUIET

    def next(self, longest: float, *, at_least: float = 0.0) -> float:
        """Seconds to wait now: between half and all of the step, so that many clients do not come back at once."""
        now = self._clock.monotonic()
        if now - self._over > QUIET:
            self._next = FIRST_PAUSE
        step = min(self._next, longest)
        self._next = min(step * 2, LONGEST_PAUSE)
        pause = max(step * (0.5 + self._jitter.random() / 2), at_least)
        self._over = now + pause
        return pause
