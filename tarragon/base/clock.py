"""The clock as an argument, so that tests can control the time."""

from __future__ import annotations

import asyncio
import datetime as dt
import heapq
import itertools
import time
from collections.abc import Awaitable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Clock(Protocol):
    """Tells the time and sleeps. Wall time is for display, monotonic time is for deadlines."""

    def now(self) -> dt.datetime:
        """The wall time as an aware datetime in UTC. It may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go backwards. Where the system supports it, they include time spent suspended."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after that many monotonic seconds."""
        ...


class SystemClock:
    """The machine's clock. Where available it is CLOCK_BOOTTIME, which also runs while a laptop is suspended."""

    def __init__(self) -> None:
        self._source = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def now(self) -> dt.datetime:
        return dt.datetime.now(dt.UTC)

    def monotonic(self) -> float:
        return time.clock_gettime(self._source)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class FakeClock:
    """A clock for tests that only moves by `advance`. It ships with the protocol, as trio's MockClock does."""

    def __init__(self, start: dt.datetime | None = None) -> None:
        self._now = start or dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
        self._monotonic = 0.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> dt.datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        wakeup: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._monotonic + seconds, next(self._order), wakeup))
        await wakeup

    def advance(self, seconds: float) -> None:
        """Advance both times and wake the sleepers that are due, in the order of their deadlines."""
        self._monotonic += seconds
        self._now += dt.timedelta(seconds=seconds)
        while self._sleepers and self._sleepers[0][0] <= self._monotonic:
            _, _, wakeup = heapq.heappop(self._sleepers)
            if not wakeup.done():
                wakeup.set_result(None)

    def next_due(self) -> float | None:
        """The monotonic time at which the next sleeper wakes, or None if there is no sleeper."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None


async def with_timeout(clock: Clock, seconds: float, work: Awaitable[T]) -> T:
    """Await the work with a timeout in seconds of the clock. Cancels it and raises TimeoutError when that has passed.

    Unlike this, asyncio.timeout uses the time of the event loop, which stops while the machine is suspended.
    """
    task = asyncio.ensure_future(work)
    timer = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait((task, timer), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise TimeoutError(f"timed out after {seconds:g} s")
    finally:
        timer.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))
