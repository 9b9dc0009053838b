from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from tarragon.base.clock import FakeClock
from tarragon.localcluster.daemon.serving import until_idle, until_unused
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


@dataclass
class AskedWhileItLooks:
    """A cluster to which something happens while it finds out whether it is busy."""

    clock: FakeClock
    happens: Callable[[], None]
    asked: float = 0.0

    async def is_busy(self) -> bool:
        self.happens()
        return False

    def last_request(self) -> float:
        return self.asked

    def hear(self) -> None:
        self.asked = self.clock.monotonic()


@dataclass
class ServerFile:
    """What clients could see of the server, one after the other."""

    seen: list[str] = field(default_factory=list)

    def publish(self) -> None:
        self.seen.append("published")

    def withdraw(self) -> None:
        self.seen.append("withdrawn")


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


async def test_a_request_that_comes_while_the_cluster_is_asked_restarts_the_timeout() -> None:
    clock = FakeClock()
    activity = AskedWhileItLooks(clock, lambda: activity.hear() if clock.monotonic() == QUARTER else None)
    waiting = asyncio.create_task(until_idle(activity, clock, QUARTER))
    await settle(clock)

    await pass_time(clock, 1799)
    assert not waiting.done()
    await pass_time(clock, 1)
    assert waiting.done()


async def test_an_idle_cluster_is_unused_once_clients_no_longer_find_it() -> None:
    clock, file = FakeClock(), ServerFile()
    waiting = asyncio.create_task(until_unused(Quiet(), clock, QUARTER, file))
    await settle(clock)
    await pass_time(clock, 900)

    assert waiting.done()
    assert file.seen == ["withdrawn"]


async def test_a_client_that_comes_at_the_last_moment_keeps_the_cluster() -> None:
    clock, file = FakeClock(), ServerFile()
    activity = AskedWhileItLooks(clock, lambda: activity.hear() if file.seen == ["withdrawn"] else None)
    waiting = asyncio.create_task(until_unused(activity, clock, QUARTER, file))
    await settle(clock)

    await pass_time(clock, 1799)
    assert not waiting.done()
    assert file.seen == ["withdrawn", "published"]
    await pass_time(clock, 1)
    assert waiting.done()
    assert file.seen == ["withdrawn", "published", "withdrawn"]
