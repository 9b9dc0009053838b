"""How often a wait is written: at once where it is news, and within a budget where it is mere words."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bench.support.dict_cluster import NODES, TFJOBS, DictCluster, a_job, a_node
from tarragon.base.clock import FakeClock
from tarragon.kube.codec import format_micro_time
from tarragon.kube.meta import Key
from tarragon.operator.metrics.meter import NoMeter
from tarragon.operator.scheduler.admission.writer import (
    MAX_MESSAGE_UPDATES,
    MAX_NEW_WAITS_PER_CYCLE,
    MESSAGE_UPDATE_SECONDS,
)
from tarragon.operator.scheduler.gang_scheduler import AdmissionConfig, GangScheduler
from tarragon.scheduling.api.decision import (
    BEHIND_OTHERS,
    INSUFFICIENT_RESOURCES,
    NEVER_FITS,
    NODES_UNAVAILABLE,
    QUOTA_EXCEEDED,
    RESOURCES_RELEASING,
    Decision,
    Defer,
)
from tarragon.scheduling.api.snapshot import Snapshot, WaitingGang
from tarragon.scheduling.state.memory import Memory


class Counting(NoMeter):
    def __init__(self) -> None:
        self.codes: Counter[str] = Counter()

    def decision_written(self, decision: str, code: str) -> None:
        assert decision == "wait"
        self.codes[code] += 1


class Queue:
    """Jobs that wait, and a policy that says of each what the test wants."""

    def __init__(self, jobs: int = 1) -> None:
        self.clock = FakeClock()
        self.shelves = DictCluster(self.clock)
        self.counted = Counting()
        self.pause: float | None = None
        self.said: Callable[[int, WaitingGang], tuple[str, str]] = lambda *_: (INSUFFICIENT_RESOURCES, "needs 2 more")
        self.shelves.put(NODES, a_node("n"))
        for number in range(jobs):
            self.shelves.put(TFJOBS, a_job(f"job-{number:04}", workers=1))
        conduct = AdmissionConfig(meter=self.counted)
        world = self.shelves.new_informers()
        self.admitter = GangScheduler(self.shelves, self.clock, world, self._policy, conduct)  # type: ignore[arg-type]

    def _policy(self, snapshot: Snapshot, _: Memory) -> Sequence[Decision]:
        return [Defer(gang.name, *self.said(place, gang)) for place, gang in enumerate(snapshot.waiting)]

    def all_say(self, code: str, message: str = "in other words") -> None:
        self.said = lambda *_: (code, message)

    async def round(self) -> list[str]:
        """The jobs that it wrote."""
        before = len(self.shelves.patched)
        self.pause = await self.admitter.run_cycle()
        return self.shelves.patched[before:]

    async def all_told(self) -> None:
        while await self.round():
            pass

    def code(self, name: str = "job-0000") -> str:
        job: Any = next(body for (_, key), body in self.shelves.objects.items() if key.name == name)
        return str(job["status"]["tarragon"]["admission"]["wait"]["code"])


async def test_a_wait_that_changes_with_every_small_amount_that_becomes_free_is_told_every_ten_seconds() -> None:
    queue = Queue()
    await queue.all_told()
    queue.counted.codes.clear()
    written = 0
    for half_second in range(120):
        queue.all_say((INSUFFICIENT_RESOURCES, BEHIND_OTHERS)[half_second % 2], f"needs {half_second} more")
        written += len(await queue.round())
        queue.clock.advance(0.5)
    assert 5 <= written <= 6
    assert sum(queue.counted.codes.values()) <= written  # Nothing is counted, nor logged, that is not written.


async def test_what_was_not_due_is_decided_about_again_after_ten_seconds() -> None:
    queue = Queue()
    await queue.all_told()
    queue.all_say(BEHIND_OTHERS)
    assert (await queue.round(), queue.pause) == ([], MESSAGE_UPDATE_SECONDS)
    queue.clock.advance(MESSAGE_UPDATE_SECONDS)
    assert (await queue.round(), queue.pause) == (["job-0000"], None)
    assert queue.code() == BEHIND_OTHERS


@pytest.mark.parametrize("code", [RESOURCES_RELEASING, NEVER_FITS, NODES_UNAVAILABLE, QUOTA_EXCEEDED])
async def test_any_other_code_is_told_at_once(code: str) -> None:
    queue = Queue()
    await queue.all_told()
    for said in (code, INSUFFICIENT_RESOURCES, code, BEHIND_OTHERS):
        queue.all_say(said)
        assert await queue.round() == ["job-0000"]
        assert queue.code() == said
        queue.clock.advance(0.5)


async def test_of_other_words_the_first_in_the_queue_and_those_told_longest_ago_are_told() -> None:
    queue = Queue(120)
    await queue.all_told()
    queue.clock.advance(MESSAGE_UPDATE_SECONDS)
    queue.said = lambda place, _: (INSUFFICIENT_RESOURCES, "in other words" if place >= 60 else "needs 2 more")
    later = await queue.round()
    assert later == [f"job-{number:04}" for number in range(60, 110)]
    queue.clock.advance(MESSAGE_UPDATE_SECONDS)
    queue.all_say(INSUFFICIENT_RESOURCES, "in third words")
    first = range(MAX_MESSAGE_UPDATES)
    oldest = range(MAX_MESSAGE_UPDATES, 2 * MAX_MESSAGE_UPDATES)
    assert await queue.round() == [f"job-{number:04}" for number in (*first, *oldest)]
    queue.clock.advance(MESSAGE_UPDATE_SECONDS)
    queue.all_say(INSUFFICIENT_RESOURCES, "in fourth words")
    # Ten at the end of the first sixty, and the ten at the end of all, were told before anybody else.
    oldest_now = [*range(50, 60), *range(110, 120), *range(60, 65)]
    assert await queue.round() == [f"job-{number:04}" for number in (*first, *oldest_now)]


async def test_no_more_words_are_told_between_two_budgets() -> None:
    queue = Queue(120)
    await queue.all_told()
    queue.clock.advance(MESSAGE_UPDATE_SECONDS)
    written = []
    for half_second in range(20):
        queue.all_say(INSUFFICIENT_RESOURCES, f"needs {half_second} more")
        written.append(len(await queue.round()))
        queue.clock.advance(MESSAGE_UPDATE_SECONDS / 20)
    assert written == [2 * MAX_MESSAGE_UPDATES] + [0] * 19


async def test_thousands_of_codes_are_told_some_hundreds_a_round_in_the_order_of_the_queue() -> None:
    queue = Queue(MAX_NEW_WAITS_PER_CYCLE + 100)
    names = [f"job-{number:04}" for number in range(MAX_NEW_WAITS_PER_CYCLE + 100)]
    assert (await queue.round(), queue.pause) == (names[:MAX_NEW_WAITS_PER_CYCLE], 0.0)
    assert (await queue.round(), queue.pause) == (names[MAX_NEW_WAITS_PER_CYCLE:], None)


async def test_a_job_that_was_made_anew_under_its_name_is_told_its_first_words_at_once() -> None:
    queue = Queue()
    await queue.all_told()
    queue.shelves.remove(TFJOBS, Key("default", "job-0000"))
    queue.shelves.put(TFJOBS, a_job("job-0000", workers=1))
    assert await queue.round() == ["job-0000"]


async def test_a_pause_that_ends_while_a_cycle_runs_is_followed_by_another_cycle_at_once() -> None:
    queue = Queue()
    pauses = a_job("job-9999", workers=1)
    after = format_micro_time(queue.clock.now() + dt.timedelta(seconds=1))
    retry = {"count": 1, "after": after}
    pauses["status"] = {"tarragon": {"admission": {"queued": format_micro_time(queue.clock.now()), "retry": retry}}}
    queue.shelves.put(TFJOBS, pauses)
    await queue.round()
    assert queue.pause == 1.0

    def late(_: int, gang: WaitingGang) -> tuple[str, str]:
        queue.clock.advance(2)
        return INSUFFICIENT_RESOURCES, gang.name

    queue.said = late
    await queue.round()
    assert queue.pause == 0.0
