from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from tarragon.base.clock import FakeClock
from tarragon.client.errors import error_from_status
from tarragon.localcluster.controllers.reconcile_queue import WORKERS, ReconcileQueue
from tests.client.scripted import settle

UNAVAILABLE = error_from_status({"code": 503, "reason": "ServiceUnavailable"})
ASKED_TO_WAIT = error_from_status({"code": 429, "reason": "TooManyRequests", "details": {"retryAfterSeconds": 9}})


class Bench:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.queue: ReconcileQueue[str] = ReconcileQueue(self.clock)
        self.processed: list[str] = []

    @asynccontextmanager
    async def working(self, reconcile: Callable[[str], Awaitable[float | None]]) -> AsyncIterator[None]:
        async def recorded(item: str) -> float | None:
            self.processed.append(item)
            return await reconcile(item)

        task = asyncio.create_task(self.queue.run(recorded))
        await settle(self.clock)
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await settle(self.clock)


async def done(_: str) -> float | None:
    return None


async def test_a_queued_item_is_not_queued_twice() -> None:
    bench = Bench()
    for item in ("a", "b", "a", "a"):
        bench.queue.add(item)
    async with bench.working(done):
        pass

    assert bench.processed == ["a", "b"]


async def test_an_item_added_while_it_is_processed_is_processed_again_but_never_concurrently() -> None:
    bench = Bench()
    gate = asyncio.Event()

    async def slow(_: str) -> float | None:
        await gate.wait()
        return None

    bench.queue.add("a")
    async with bench.working(slow):
        bench.queue.add("a")
        bench.queue.add("a")
        await settle(bench.clock)
        assert bench.processed == ["a"]

        gate.set()
        await settle(bench.clock)
        assert bench.processed == ["a", "a"]


async def test_different_items_are_processed_concurrently() -> None:
    bench = Bench()
    gate = asyncio.Event()

    async def slow(_: str) -> float | None:
        await gate.wait()
        return None

    for number in range(WORKERS + 5):
        bench.queue.add(str(number))
    async with bench.working(slow):
        assert len(bench.processed) == WORKERS


async def test_a_failed_item_is_retried_with_growing_backoff() -> None:
    bench = Bench()
    looks: list[float] = []

    async def fails(_: str) -> float | None:
        looks.append(bench.clock.monotonic())
        raise UNAVAILABLE

    bench.queue.add("a")
    async with bench.working(fails):
        for _ in range(4000):
            await bench.pass_time(0.05)

    pauses = [after - before for before, after in itertools.pairwise(looks)]
    assert 10 < len(looks) < 25
    assert pauses[0] < 0.1
    assert 15 <= pauses[-1] <= 30.1


async def test_retry_after_of_the_server_is_respected() -> None:
    bench = Bench()
    answers = iter([ASKED_TO_WAIT])

    async def once(_: str) -> float | None:
        for answer in answers:
            raise answer
        return None

    bench.queue.add("a")
    async with bench.working(once):
        await bench.pass_time(8.9)
        assert bench.processed == ["a"]

        await bench.pass_time(0.2)
        assert bench.processed == ["a", "a"]


async def test_a_reconciler_can_request_a_requeue_after_a_delay() -> None:
    bench = Bench()

    async def twice(_: str) -> float | None:
        return 5.0 if len(bench.processed) < 2 else None

    bench.queue.add("a")
    async with bench.working(twice):
        await bench.pass_time(4.9)
        assert bench.processed == ["a"]

        await bench.pass_time(0.2)
        await bench.pass_time(60)
        assert bench.processed == ["a", "a"]


async def test_a_change_is_processed_before_a_pending_requeue_and_replaces_it() -> None:
    bench = Bench()

    async def hourly(_: str) -> float | None:
        return 3600.0

    bench.queue.add("a")
    async with bench.working(hourly):
        await bench.pass_time(1800)
        bench.queue.add("a")
        await settle(bench.clock)
        assert bench.processed == ["a", "a"]

        await bench.pass_time(1801)
        assert bench.processed == ["a", "a"]
        await bench.pass_time(1800)
        assert bench.processed == ["a", "a", "a"]


async def test_an_unexpected_exception_of_a_reconciler_is_raised() -> None:
    bench = Bench()

    async def broken(_: str) -> float | None:
        raise ZeroDivisionError

    bench.queue.add("a")
    with pytest.raises(ExceptionGroup) as caught:
        await bench.queue.run(broken)
    assert caught.group_contains(ZeroDivisionError)
