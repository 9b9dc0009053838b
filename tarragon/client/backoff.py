"""When requests to a failing server are retried: `retry_delay` for one request, `ExponentialBackoff` for a loop."""

from __future__ import annotations

import random

from tarragon.base.clock import Clock
from tarragon.client.errors import ApiError, TooManyRequests, Unavailable, Unreachable

INITIAL_DELAY = 0.8
MAX_DELAY = 30.0
RESET_AFTER = 120.0
"""Seconds without a failure after which the backoff is reset."""
_MAX_THROTTLED_RETRIES = 5
_MAX_RETRY_AFTER = 10.0
"""The longest Retry-After, in seconds, that is honoured here (kube-apiserver sends 1). Else the caller decides."""
_MAX_READ_RETRIES = 3
_FIRST_READ_PAUSE = 0.3


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


def retry_delay(method: str, error: ApiError, attempt: int, dice: random.Random) -> float | None:
    """The seconds until the next attempt; None if the request must not be retried. `attempt` is 0 after the first one.

    A throttled request (429) was not executed, so it may be retried. After any other failure it may have been executed,
    so only reads are retried.
    """
    if isinstance(error, TooManyRequests):
        if attempt >= _MAX_THROTTLED_RETRIES or error.retry_after > _MAX_RETRY_AFTER:
            return None
        # Never less than the server asked for; with jitter, so that throttled clients do not return all at once.
        return max(error.retry_after, 1.0) * (1 + dice.random() / 2)
    if method != "GET" or attempt >= _MAX_READ_RETRIES or not isinstance(error, Unavailable):
        return None
    if isinstance(error, Unreachable):
        return None
    return float(_FIRST_READ_PAUSE * 2**attempt * (0.5 + dice.random() / 2))
