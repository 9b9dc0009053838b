"""When a call is made again, and after how long."""

from __future__ import annotations

import random

from tarragon.client.errors import ApiError, TooManyRequests, Unavailable, Unreachable

_REFUSALS = 5
_LONGEST_REFUSAL = 10.0
"""Seconds that a server may ask for (kube-apiserver asks for one); whoever called decides about longer ones."""
_FAILURES = 3
_FIRST_FAILURE_PAUSE = 0.3


def pause(method: str, error: ApiError, attempt: int, dice: random.Random) -> float | None:
    """Seconds until the next attempt, or None: then the error stands. `attempt` is 0 after the first one.

    Whatever was refused for being too much (429) has not been done: it may be asked for again. What failed
    otherwise may have been done: only reading is repeated.
    """
    if isinstance(error, TooManyRequests):
        if attempt >= _REFUSALS or error.retry_after > _LONGEST_REFUSAL:
            return None
        # Never less than asked; spread, so that those refused together do not come back together.
        return max(error.retry_after, 1.0) * (1 + dice.random() / 2)
    if method != "GET" or attempt >= _FAILURES or not isinstance(error, Unavailable):
        return None
    if isinstance(error, Unreachable):
        return None
    return float(_FIRST_FAILURE_PAUSE * 2**attempt * (0.5 + dice.random() / 2))
