"""A work queue with workers, which call one controller's reconcile function."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from tarragon.base.clock import Clock
from tarragon.client.errors import ApiError
from tarragon.client.wakeup import WakeupSignal
from tarragon.client.workqueue import WorkQueue

Item = TypeVar("Item", bound=Hashable)

Reconcile = Callable[[Item], Awaitable[float | None]]
"""Reconciles one item. Returns after how many seconds to do so again, or None for when it is added again."""

WORKERS = 32
"""Concurrent writes share one disk commit, so that many workers need fewer commits."""
MAX_BACKOFF = 30.0
"""In seconds. Users of the embedded cluster wait at a terminal, and a retry burdens nobody else's server."""


class ReconcileQueue(Generic[Item]):
    """Items that a controller has to reconcile.

    An item that fails with an ApiError is retried with backoff; any other exception is a bug, and `run` raises it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._items: WorkQueue[Item] = WorkQueue(max_backoff=MAX_BACKOFF)
        self._wakeup = WakeupSignal(clock)

    def add(self, item: Item) -> None:
        self._items.add(item, self._clock.monotonic())
        self._wakeup.set()

    async def run(self, reconcile: Reconcile[Item]) -> None:
        """Process items until cancelled."""
        workers = asyncio.Semaphore(WORKERS)
        async with asyncio.TaskGroup() as tasks:
            while True:
                await workers.acquire()
                item = await self._next()
                tasks.create_task(self._process(reconcile, item, workers.release))

    async def _next(self) -> Item:
        """The next due item."""
        while True:
            self._wakeup.clear()
            item = self._items.get(self._clock.monotonic())
            if item is not None:
                return item
            due = self._items.next_due()
            await self._wakeup.wait(None if due is None else due - self._clock.monotonic())

    async def _process(self, reconcile: Reconcile[Item], item: Item, release: Callable[[], None]) -> None:
        try:
            delay = await reconcile(item)
        except ApiError as error:
            self._items.requeue(item, self._clock.monotonic(), at_least=error.retry_after)
        else:
            self._items.done(item)
            if delay is not None:
                self._items.add(item, self._clock.monotonic() + delay)
        finally:
            release()
            self._wakeup.set()
