"""A work queue: each item is processed by one worker at a time, and retried with backoff after an API error."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from tarragon.base.clock import Clock
from tarragon.client.errors import ApiError

Item = TypeVar("Item", bound=Hashable)

Reconcile = Callable[[Item], Awaitable[float | None]]
"""Reconciles one item. Returns after how many seconds to do so again, or None for when it is added again."""

WORKERS = 32
"""Concurrent writes share one disk commit, so that many workers need fewer commits."""
FIRST_PAUSE = 0.02
LONGEST_PAUSE = 30.0


class WorkQueue(Generic[Item]):
    """A de-duplicating queue with workers.

    Adding an item that is queued already has no effect; one that is being processed is processed once more. An item
    that fails with an ApiError is requeued with backoff; any other exception is a bug, and `run` raises it.
    """

    def __init__(self, clock: Clock, jitter: random.Random) -> None:
        self._clock = clock
        self._jitter = jitter
        self._queue: asyncio.Queue[Item] = asyncio.Queue()
        self._queued: set[Item] = set()
        self._busy: set[Item] = set()
        self._again: set[Item] = set()
        self._failures: dict[Item, int] = {}
        self._timers: dict[Item, asyncio.Task[None]] = {}

    def add(self, item: Item) -> None:
        """Queue the item."""
        if item in self._busy:
            self._again.add(item)
        elif item not in self._queued:
            self._queued.add(item)
            self._queue.put_nowait(item)

    async def run(self, reconcile: Reconcile[Item]) -> None:
        """Process items until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(WORKERS):
                tasks.create_task(self._work(reconcile, tasks))

    async def _work(self, reconcile: Reconcile[Item], tasks: asyncio.TaskGroup) -> None:
        while True:
            item = await self._queue.get()
            self._queued.discard(item)
            self._busy.add(item)
            if (timer := self._timers.pop(item, None)) is not None:
                timer.cancel()
            pause = await self._reconcile(reconcile, item)
            self._busy.discard(item)
            if item in self._again:
                self._again.discard(item)
                self.add(item)
            elif pause is not None:
                self._timers[item] = tasks.create_task(self._add_later(item, pause))

    async def _reconcile(self, reconcile: Reconcile[Item], item: Item) -> float | None:
        try:
            pause = await reconcile(item)
        except ApiError as error:
            failures = self._failures[item] = self._failures.get(item, 0) + 1
            step = min(FIRST_PAUSE * 2.0 ** min(failures, 20), LONGEST_PAUSE)
            return max(step * (0.5 + self._jitter.random() / 2), error.retry_after)
        self._failures.pop(item, None)
        return pause

    async def _add_later(self, item: Item, pause: float) -> None:
        await self._clock.sleep(pause)
        # Removed before the item is processed, which would cancel this timer itself.
        self._timers.pop(item, None)
        self.add(item)
