from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

import structlog

from tarragon.base.clock import FakeClock
from tarragon.localcluster.controllers.supervisor import guarded
from tests.client.scripted import settle


class Part:
    """A part that fails after each start. `starts` has the times of its starts."""

    def __init__(self, clock: FakeClock, *, lives: float = 0.0) -> None:
        self.clock = clock
        self.lives = lives
        self.starts: list[float] = []

    def __call__(self) -> Coroutine[Any, Any, None]:
        return self._run()

    async def _run(self) -> None:
        self.starts.append(self.clock.monotonic())
        await self.clock.sleep(self.lives)
        raise ZeroDivisionError("a bug")


async def watch(part: Part, seconds: int) -> list[float]:
    """The pauses between a failure and the next start."""
    task = asyncio.create_task(guarded("part", part, part.clock, random.Random(1)))
    await settle(part.clock)
    for _ in range(seconds * 4):
        part.clock.advance(0.25)
        await settle(part.clock)
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return [after - before - part.lives for before, after in zip(part.starts, part.starts[1:], strict=False)]


async def test_a_failing_part_is_restarted_with_growing_backoff() -> None:
    with structlog.testing.capture_logs():
        pauses = await watch(Part(FakeClock()), 600)

    assert pauses[0] <= 0.5
    assert 30 <= pauses[-1] <= 60.25
    assert len(pauses) < 25


async def test_the_backoff_of_a_part_that_ran_long_is_reset() -> None:
    with structlog.testing.capture_logs():
        pauses = await watch(Part(FakeClock(), lives=100), 600)

    assert max(pauses) <= 0.75


async def test_each_failure_is_logged_with_its_traceback() -> None:
    with structlog.testing.capture_logs() as logs:
        await watch(Part(FakeClock()), 1)

    assert logs[0]["part"] == "part"
    assert logs[0]["exc_info"]


async def test_a_part_that_returns_is_restarted_with_backoff_too() -> None:
    clock, starts = FakeClock(), 0

    async def ends() -> None:
        nonlocal starts
        starts += 1

    with structlog.testing.capture_logs() as logs:
        task = asyncio.create_task(guarded("part", ends, clock, random.Random(1)))
        await settle(clock)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    assert starts == 1
    assert "returned" in logs[0]["event"]
