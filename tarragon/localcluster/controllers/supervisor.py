"""Restarts components of the cluster that fail, so that they do not take the others with them."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from tarragon.base.clock import Clock

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 60.0

log = structlog.get_logger(__name__)


async def guarded(
    name: str, start: Callable[[], Coroutine[Any, Any, None]], clock: Clock, jitter: random.Random
) -> None:
    """Run the coroutine of `start` until cancelled, and restart it with backoff whenever it raises or returns."""
    step = FIRST_PAUSE
    while True:
        began = clock.monotonic()
        try:
            await start()
            log.error("a component of the cluster has returned unexpectedly", part=name)
        except Exception:  # the last place in the daemon that catches everything
            log.exception("a component of the cluster has failed", part=name)
        if clock.monotonic() - began > LONGEST_PAUSE:
            step = FIRST_PAUSE
        pause = step * (0.5 + jitter.random() / 2)
        step = min(step * 2, LONGEST_PAUSE)
        log.warning("restarting the component", part=name, seconds=round(pause, 1))
        await clock.sleep(pause)
