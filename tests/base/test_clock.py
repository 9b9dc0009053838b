from __future__ import annotations

import asyncio
import datetime as dt

from tarragon.base.clock import FakeClock, SystemClock


async def test_a_sleeper_wakes_when_its_time_has_come_and_not_before() -> None:
    clock = FakeClock()
    woken: list[str] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(name)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(sleeper("late", 20))
        tasks.create_task(sleeper("early", 10))
        await settle()
        clock.advance(9)
        await settle()
        assert woken == []
        assert clock.next_due() == 10
        clock.advance(11)
    assert woken == ["early", "late"]
    assert clock.next_due() is None


async def test_both_times_move_together() -> None:
    clock = FakeClock(dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    clock.advance(90)
    assert clock.now() == dt.datetime(2026, 1, 1, 0, 1, 30, tzinfo=dt.UTC)
    assert clock.monotonic() == 90


def test_the_machines_clock_is_aware_and_in_utc() -> None:
    clock = SystemClock()
    assert clock.now().tzinfo is dt.UTC
    assert clock.monotonic() <= clock.monotonic()


async def settle() -> None:
    for _ in range(5):
        await FakeClock().sleep(0)
