"""A policy with a bug: it stops one gang if one gang is the cause, and else nothing for longer than it must."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

from structlog.testing import capture_logs

from bench.support.dict_cluster import NODES, TFJOBS, DictCluster, a_job, a_node
from tarragon.base.clock import FakeClock
from tarragon.kube.meta import Key
from tarragon.operator.manager.operator import Operator, OperatorOptions
from tarragon.operator.metrics.meter import NoMeter
from tarragon.operator.scheduler.gang_scheduler import AdmissionConfig, GangScheduler
from tarragon.operator.scheduler.policy_runner import (
    MAX_GANGS_ASIDE,
    RETRY_GANG_AFTER,
    RETRY_POLICY_AFTER,
    PolicyRunner,
)
from tarragon.scheduling.api.decision import SCHEDULER_ERROR, Admit, Decision, Defer, Evict, Resize
from tarragon.scheduling.api.snapshot import Snapshot
from tarragon.scheduling.policies.fifo import fifo
from tarragon.scheduling.state.memory import Memory
from tests.localcluster.kubelet.waiting import eventually
from tests.operator.stage import Stage, group
from tests.operator.test_dragon import Jumping


class Counting(NoMeter):
    def __init__(self) -> None:
        self.counted: list[str] = []

    def decision_rejected(self, decision: str) -> None:
        self.counted.append(decision)


class Bug:
    """In a policy: it raises when it is shown one of these, or, where `always`, whatever it is shown."""

    def __init__(self, *bad: str, always: bool = False) -> None:
        self.bad: Collection[str] = bad
        self.always = always
        self.asked = 0
        self.shown = asyncio.Event()
        """Set once it has seen a gang that waits."""

    def __call__(self, snapshot: Snapshot, memory: Memory) -> Sequence[Decision]:
        self.asked += 1
        if snapshot.waiting:
            self.shown.set()
        names = [*(gang.name for gang in snapshot.waiting), *(gang.name for gang in snapshot.running)]
        seen = [name for name in names if name.rpartition("/")[2] in self.bad]
        if seen or self.always:
            raise ZeroDivisionError(f"a bug about {seen}")
        return fifo(snapshot, memory)


class Crowd:
    def __init__(self, bug: Bug, jobs: int = 64) -> None:
        self.clock = FakeClock()
        self.shelves = DictCluster(self.clock)
        self.bug = bug
        self.meter = Counting()
        self.names = [f"job-{number:02}" for number in range(jobs)]
        for number in range(jobs // 8):
            self.shelves.put(NODES, a_node(f"n-{number}"))
        for name in self.names:
            self.shelves.put(TFJOBS, a_job(name, workers=1))
        conduct = AdmissionConfig(meter=self.meter)
        self.admitter = GangScheduler(self.shelves, self.clock, self.shelves.new_informers(), bug, conduct)  # type: ignore[arg-type]

    async def round(self) -> float | None:
        """What it logs is in `lines`."""
        with capture_logs() as self.lines:
            return await self.admitter.run_cycle()

    def told(self) -> list[str]:
        return [line["event"] for line in self.lines if line["log_level"] == "error"]

    def admission(self, name: str) -> Any:
        job = self.shelves.objects[TFJOBS.plural, Key("default", name)]
        return ((job.get("status") or {}).get("tarragon") or {}).get("admission") or {}

    def those(self, claim: Callable[[Any], bool]) -> list[str]:
        return [name for name in self.names if claim(self.admission(name))]


def is_admitted(admission: Any) -> bool:
    return "admitted" in admission


def is_put_aside(admission: Any) -> bool:
    return (admission.get("wait") or {}).get("code") == SCHEDULER_ERROR


async def test_a_gang_that_a_policy_stumbles_over_is_found_and_all_others_go_on() -> None:
    crowd = Crowd(Bug("job-41"))
    assert await crowd.round() == 0.0
    assert crowd.those(is_put_aside) == ["job-41"]
    assert crowd.told() == ["the policy failed on one gang, which is set aside"]
    assert "ZeroDivisionError: a bug about ['TFJob default/job-41']" in crowd.admission("job-41")["wait"]["message"]
    assert crowd.bug.asked <= 2 + math.log2(len(crowd.names))
    await crowd.round()
    assert crowd.those(is_admitted) == [name for name in crowd.names if name != "job-41"]
    assert crowd.told() == []
    assert crowd.meter.counted == []


async def test_it_is_left_out_from_then_on_and_tried_again_after_a_minute() -> None:
    crowd = Crowd(Bug("job-41"))
    await crowd.round()
    await crowd.round()
    crowd.bug.asked = 0
    crowd.clock.advance(1)
    pause = await crowd.round()
    assert (crowd.bug.asked, crowd.told()) == (1, [])
    assert pause == RETRY_GANG_AFTER.total_seconds() - 1
    crowd.clock.advance(pause)
    await crowd.round()
    assert (crowd.bug.asked, crowd.told()) == (3, [])  # With it, which fails, and without.
    crowd.bug.bad = ()
    crowd.clock.advance(RETRY_GANG_AFTER.total_seconds())
    await crowd.round()
    assert crowd.those(is_admitted) == crowd.names


async def test_a_running_gang_that_a_policy_stumbles_over_keeps_its_nodes_and_says_so_and_all_others_go_on() -> None:
    crowd = Crowd(Bug(), jobs=8)
    await crowd.round()
    nodes = crowd.admission("job-03")["nodes"]
    crowd.bug.bad = ["job-03"]
    crowd.shelves.put(TFJOBS, a_job("late", workers=1))
    crowd.shelves.put(NODES, a_node("another"))
    await crowd.round()
    await crowd.round()

    assert is_admitted(crowd.admission("late"))
    assert crowd.those(is_admitted) == crowd.names
    assert crowd.those(is_put_aside) == ["job-03"]
    assert crowd.admission("job-03")["nodes"] == nodes

    crowd.bug.bad = ()
    crowd.clock.advance(RETRY_GANG_AFTER.total_seconds())
    await crowd.round()
    assert crowd.those(is_put_aside) == []


def test_what_a_policy_remembers_from_a_cycle_in_which_it_raised_is_dropped() -> None:
    memories: list[Memory] = []

    def raises_once(_: Snapshot, memory: Memory) -> Sequence[Decision]:
        memories.append(memory)
        if len(memories) == 2:
            raise KeyError("a bug")
        return []

    runner = PolicyRunner(raises_once, NoMeter())
    snapshot = Snapshot(now=FakeClock().now(), nodes=[])
    with capture_logs():
        for _ in range(4):
            runner.run(snapshot)

    first, raised, after, last = memories
    assert first is raised
    assert after is not raised
    assert after is last


async def test_it_is_tried_again_at_once_when_it_asks_for_something_else() -> None:
    crowd = Crowd(Bug("job-41"))
    await crowd.round()
    crowd.bug.bad = ()
    job = crowd.shelves.objects[TFJOBS.plural, Key("default", "job-41")]
    crowd.shelves.put(TFJOBS, {**a_job("job-41", workers=1, gpus=0), "status": job["status"]})
    await crowd.round()
    assert crowd.those(is_admitted) == crowd.names


async def test_several_are_found_one_a_round_and_the_rounds_follow_at_once() -> None:
    bad = ["job-03", "job-04", "job-60"]
    crowd = Crowd(Bug(*bad))
    pauses = [await crowd.round() for _ in [*bad, "then without them"]]
    assert pauses == [0.0, 0.0, 0.0, RETRY_GANG_AFTER.total_seconds()]
    assert crowd.those(is_put_aside) == bad
    assert crowd.those(is_admitted) == [name for name in crowd.names if name not in bad]
    assert crowd.meter.counted == []


async def test_where_it_stumbles_over_too_many_it_is_the_policy_and_others_are_not_looked_for() -> None:
    crowd = Crowd(Bug())
    crowd.bug.bad = crowd.names
    for _ in range(MAX_GANGS_ASIDE):
        await crowd.round()
    crowd.bug.asked = 0
    assert await crowd.round() == RETRY_POLICY_AFTER.total_seconds()
    assert crowd.bug.asked == 1
    assert crowd.meter.counted == ["policy"]


async def test_a_policy_that_fails_altogether_is_told_with_sizes_and_counted_and_asked_again_and_nothing_is_lost() -> (
    None
):
    crowd = Crowd(Bug(), jobs=8)
    await crowd.round()
    crowd.bug.always = True
    crowd.shelves.put(TFJOBS, a_job("late", workers=1))
    crowd.shelves.put(NODES, a_node("another"))
    before = len(crowd.shelves.patched)
    assert await crowd.round() == RETRY_POLICY_AFTER.total_seconds()
    assert len(crowd.shelves.patched) == before
    (line,) = crowd.lines
    assert line["event"] == "the policy failed: nothing was decided, and it will be retried"
    assert (line["nodes"], line["waiting"], line["running"]) == (2, 1, 8)
    assert isinstance(line["exc_info"], ZeroDivisionError)
    assert crowd.meter.counted == ["policy"]
    crowd.bug.always = False
    assert await crowd.round() is None
    assert is_admitted(crowd.admission("late"))


async def test_an_operator_asks_a_policy_again_that_failed_though_nothing_happens(stage: Stage) -> None:
    bug, clock = Bug(always=True), Jumping()
    await stage.node("n")
    with capture_logs():
        stage.start(Operator(stage.world.client, clock, OperatorOptions(seed=1, policy=bug)).run())
        await stage.submit("job", Worker=group(1))
        async with asyncio.timeout(60):
            await bug.shown.wait()
        bug.always = False

        def has_come_after_a_while() -> bool:
            clock.jump(RETRY_POLICY_AFTER.total_seconds())
            return "job-worker-0" in stage.pods()

        await eventually(has_come_after_a_while)


def test_rejected_decisions_are_counted_under_the_labels_that_docs_metrics_names() -> None:
    invalid: list[Decision] = [
        Admit("nobody", {}),
        Resize("nobody", {}),
        Evict("nobody", "", ""),
        Defer("nobody", "", ""),
    ]
    meter = Counting()

    with capture_logs():
        PolicyRunner(lambda _, __: invalid, meter).run(Snapshot(now=FakeClock().now(), nodes=()))

    assert meter.counted == ["Place", "Resize", "Evict", "Wait"]
