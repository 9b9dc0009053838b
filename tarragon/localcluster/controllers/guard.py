"""The task guard: a part of the cluster that dies is logged and started again, and never takes the others with it."""

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
    """Run what `start` makes, for ever: whenever it ends, by a bug or by itself, make it anew after a growing pause."""
    step = FIRST_PAUSE
    while True:
        began = clock.monotonic()
        try:
            await start()
            log.error("a part of the cluster has ended that never should", part=name)
        except Exception:  # the last place in the daemon that catches everything
            log.exception("a part of the cluster has died", part=name)
        if clock.monotonic() - began > LONGEST_PAUSE:
            step = FIRST_PAUSE
        pause = step * (0.5 + jitter.random() / 2)
        step = min(step * 2, LONGEST_PAUSE)
        log.warning("the part is started again", part=name, seconds=round(pause, 1))
        await clock.sleep(pause)
