from __future__ import annotations

import asyncio

from tarragon.base.clock import FakeClock
from tarragon.localcluster.daemon.serving import until_idle
from tests.client.scripted import settle

QUARTER = 900.0


class Quiet:
    def __init__(self) -> None:
        self.busy = False
        self.asked = 0.0

    async def is_busy(self) -> bool:
        return self.busy

    def last_request(self) -> float:
        return self.asked


async def pass_time(clock: FakeClock, seconds: int) -> None:
    for _ in range(seconds):
        clock.advance(1)
        await settle(clock)


async def test_a_cluster_without_activity_is_idle_after_the_timeout() -> None:
    clock = FakeClock()
    waiting = asyncio.create_task(until_idle(Quiet(), clock, QUARTER))
    await settle(clock)
    await pass_time(clock, 899)
    assert not waiting.done()

    await pass_time(clock, 1)
    assert waiting.done()


async def test_a_busy_cluster_is_idle_only_after_the_timeout_from_its_end() -> None:
    clock, activity = FakeClock(), Quiet()
    waiting = asyncio.create_task(until_idle(activity, clock, QUARTER))
    await settle(clock)
    activity.busy = True
    await pass_time(clock, 5000)
    assert not waiting.done()

    activity.busy = False
    await pass_time(clock, 805)
    assert not waiting.done()
    await pass_time(clock, 95)
    assert waiting.done()


async def test_requests_of_clients_restart_the_timeout() -> None:
    clock, activity = FakeClock(), Quiet()
    waiting = asyncio.create_task(until_idle(activity, clock, QUARTER))
    await settle(clock)
    for _ in range(10):
        await pass_time(clock, 800)
        activity.asked = clock.monotonic()
    assert not waiting.done()

    await pass_time(clock, 1000)
    assert waiting.done()
