"""`Worklist`: things that need a look, each looked at by one worker at a time, and again after a failure."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from tarragon.base.clock import Clock
from tarragon.client.errors import ApiError

Item = TypeVar("Item", bound=Hashable)

Look = Callable[[Item], Awaitable[float | None]]
"""Looks at one thing; the answer is after how many seconds to look again, None when a change will say so."""

WORKERS = 32
"""Writes that are under way together go to the disk together: with few, each waits for a disk turn of its own."""
FIRST_PAUSE = 0.02
LONGEST_PAUSE = 30.0


class Worklist(Generic[Item]):
    """Things may be added at any time: what is waiting already is not added twice, what is being looked at is looked
    at once more. A look that fails with an ApiError is repeated after a growing pause; any other exception is a bug
    and leaves `run`.
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
        """Look at it soon."""
        if item in self._busy:
            self._again.add(item)
        elif item not in self._queued:
            self._queued.add(item)
            self._queue.put_nowait(item)

    async def run(self, look: Look[Item]) -> None:
        """For ever, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(WORKERS):
                tasks.create_task(self._work(look, tasks))

    async def _work(self, look: Look[Item], tasks: asyncio.TaskGroup) -> None:
        while True:
            item = await self._queue.get()
            self._queued.discard(item)
            self._busy.add(item)
            if (timer := self._timers.pop(item, None)) is not None:
                timer.cancel()
            pause = await self._look(look, item)
            self._busy.discard(item)
            if item in self._again:
                self._again.discard(item)
                self.add(item)
            elif pause is not None:
                self._timers[item] = tasks.create_task(self._add_later(item, pause))

    async def _look(self, look: Look[Item], item: Item) -> float | None:
        try:
            pause = await look(item)
        except ApiError as error:
            failures = self._failures[item] = self._failures.get(item, 0) + 1
            step = min(FIRST_PAUSE * 2.0 ** min(failures, 20), LONGEST_PAUSE)
            return max(step * (0.5 + self._jitter.random() / 2), error.retry_after)
        self._failures.pop(item, None)
        return pause

    async def _add_later(self, item: Item, pause: float) -> None:
        await self._clock.sleep(pause)
        # Not there any more: the timer must not cancel itself when the item's turn comes.
        self._timers.pop(item, None)
        self.add(item)
