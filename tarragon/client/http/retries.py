"""Decides whether a failed request is retried, and after which pause."""

from __future__ import annotations

import random

from tarragon.client.errors import ApiError, TooManyRequests, Unavailable, Unreachable

_MAX_THROTTLED_RETRIES = 5
_MAX_RETRY_AFTER = 10.0
"""The longest Retry-After, in seconds, that is honoured here (kube-apiserver sends 1). Else the caller decides."""
_MAX_READ_RETRIES = 3
_FIRST_READ_PAUSE = 0.3


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
