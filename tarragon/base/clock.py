"""The clock as a value that is passed around, so that tests can turn it by hand."""

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
    """Two times and a way to wait: wall time is for people, monotonic time for deadlines."""

    def now(self) -> dt.datetime:
        """The wall time, aware, in UTC. It may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that never run backwards and count a suspended machine's sleep where the system can."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return when that many monotonic seconds have gone."""
        ...


class SystemClock:
    """The machine's clock. CLOCK_BOOTTIME, where there is one, sees a laptop's closed lid; CLOCK_MONOTONIC does not."""

    def __init__(self) -> None:
        self._source = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def now(self) -> dt.datetime:
        return dt.datetime.now(dt.UTC)

    def monotonic(self) -> float:
        return time.clock_gettime(self._source)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class ManualClock:
    """A clock that stands still until `advance`. Ships with the port it fakes, as trio's MockClock does."""

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
        waking: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._monotonic + seconds, next(self._order), waking))
        await waking

    def advance(self, seconds: float) -> None:
        """Move both times on and wake, in order of their deadlines, everyone who is due."""
        self._monotonic += seconds
        self._now += dt.timedelta(seconds=seconds)
        while self._sleepers and self._sleepers[0][0] <= self._monotonic:
            _, _, waking = heapq.heappop(self._sleepers)
            if not waking.done():
                waking.set_result(None)

    def next_due(self) -> float | None:
        """The monotonic time of the earliest sleeper, or None when nobody sleeps."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None


async def within(clock: Clock, seconds: float, work: Awaitable[T]) -> T:
    """What the work returns or raises; after that many of the clock's seconds it is cancelled, with TimeoutError.

    asyncio.timeout has the event loop's own time, which stands still while the machine is suspended.
    """
    doing = asyncio.ensure_future(work)
    bell = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait((doing, bell), return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return doing.result()
        raise TimeoutError(f"no end after {seconds:g} s")
    finally:
        bell.cancel()
        if not doing.done():
            doing.cancel()
            await asyncio.wait((doing,))
