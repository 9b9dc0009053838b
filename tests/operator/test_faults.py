"""A bug that one job brings to light: that job waits, and says why; all others go on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from bench.support.dict_cluster import NODES, PODS, TFJOBS, DictCluster, a_job, a_node, a_pod
from tarragon.base.clock import FakeClock
from tarragon.base.errors import Problem
from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.job.model import TrainingJob
from tarragon.kube.meta import Key
from tarragon.operator.manager.operator import Operator, OperatorOptions
from tarragon.operator.scheduler.gang_scheduler import GangScheduler
from tarragon.scheduling.api.decision import NEVER_FITS, SCHEDULER_ERROR
from tarragon.scheduling.policies import POLICIES
from tests.operator.stage import Stage, group

GPU = "nvidia.com/gpu"
STEPS = {
    "reckon its demands": "tarragon.operator.scheduler.snapshot.demand_cache.group_request",
    "look up its priority": "tarragon.operator.scheduler.snapshot.gang_cache.priority_of",
    "see since when it waits": "tarragon.operator.scheduler.snapshot.gang_cache.queued_since",
    "carry out its start": "tarragon.operator.scheduler.admission.update.size_of",
}


class Two:
    """Jobs `bad` and `good`, and a node with room for both."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.shelves = DictCluster(self.clock)
        self.shelves.put(NODES, a_node("n"))
        self.shelves.put(TFJOBS, a_job("bad", workers=3))
        self.shelves.put(TFJOBS, a_job("good", workers=2))
        world = self.shelves.new_informers()
        self.admitter = GangScheduler(self.shelves, self.clock, world, POLICIES["fifo"])  # type: ignore[arg-type]

    def job(self, name: str) -> Any:
        return self.shelves.objects[TFJOBS.plural, Key("default", name)]

    def admission(self, name: str) -> Any:
        return ((self.job(name).get("status") or {}).get("tarragon") or {}).get("admission") or {}


def breaks_for_three(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Whatever is asked about three workers, or about a job that is called bad."""
    module, _, name = where.rpartition(".")
    sound = getattr(__import__(module, fromlist=[name]), name)

    def broken(about: Any, *more: Any) -> Any:
        if "bad" in str(getattr(getattr(about, "job", about), "key", "")) or getattr(about, "replicas", 0) == 3:
            raise KeyError("a bug")
        if isinstance(getattr(about, "nodes", about), dict) and len(getattr(about, "nodes", about)) == 3:
            raise KeyError("a bug")
        return sound(about, *more)

    monkeypatch.setattr(where, broken)


@pytest.mark.parametrize("step", STEPS)
async def test_a_bug_in_one_step_for_one_job_stops_no_other_and_is_told_once(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = Two()
    breaks_for_three(monkeypatch, STEPS[step])
    with capture_logs() as lines:
        for _ in range(3):
            await two.admitter.run_cycle()
            two.clock.advance(1)
    told = [line for line in lines if line["event"] == "unexpected error in the scheduler"]
    assert [line["job"] for line in told] == ["bad"]
    assert "admitted" in two.admission("good")
    wait = two.admission("bad")["wait"]
    assert wait["code"] == SCHEDULER_ERROR
    assert "KeyError: 'a bug'" in wait["message"]
    monkeypatch.undo()
    await two.admitter.run_cycle()
    assert "admitted" in two.admission("bad")


@pytest.mark.parametrize("step", STEPS)
async def test_two_jobs_that_bring_a_bug_to_light_are_each_set_aside(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = Two()
    two.shelves.put(TFJOBS, a_job("bad-too", workers=3))
    breaks_for_three(monkeypatch, STEPS[step])
    with capture_logs():
        for _ in range(2):
            await two.admitter.run_cycle()

    assert "admitted" in two.admission("good")
    assert {two.admission(name)["wait"]["code"] for name in ("bad", "bad-too")} == {SCHEDULER_ERROR}


async def test_a_bug_in_writing_of_one_job_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    two = Two()
    breaks_for_three(monkeypatch, "tarragon.operator.scheduler.admission.writer.encode_admission")
    with capture_logs() as lines:
        for _ in range(3):
            await two.admitter.run_cycle()
    assert [line["job"] for line in lines if line["event"] == "unexpected error in the scheduler"] == ["bad"]
    assert "admitted" in two.admission("good")
    monkeypatch.undo()
    await two.admitter.run_cycle()
    assert "admitted" in two.admission("bad")


async def test_what_could_not_be_reckoned_of_a_job_is_tried_again_though_nothing_about_it_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pod that has ended gives its place back, and nobody is left to tell of it a second time."""
    two = Two()
    await two.admitter.run_cycle()
    for name, workers in (("bad", 3), ("good", 2)):
        for index in range(workers):
            two.shelves.put(PODS, a_pod(two.job(name), f"worker-{index}", "n"))
    await two.admitter.run_cycle()
    monkeypatch.setattr("tarragon.operator.scheduler.snapshot.reservations.pods_by_replica", raising)
    for index in range(3):
        two.shelves.remove(PODS, Key("default", f"bad-worker-{index}"))
    two.shelves.put(TFJOBS, a_job("next", workers=4))
    with capture_logs():
        await two.admitter.run_cycle()
    monkeypatch.undo()
    await two.admitter.run_cycle()
    assert "admitted" not in two.admission("next")  # What the lost pods had is kept for those that come after them.
    held = (await two.admitter.snapshot()).nodes
    assert [node.free[GPU] for node in held] == [3000]


def raising(*_: Any) -> Iterator[Any]:
    raise KeyError("a bug")


async def test_a_job_that_cannot_be_read_after_an_edit_says_so_and_keeps_what_it_has(stage: Stage) -> None:
    """A framework whose check of manifests has a bug."""

    def stumbles_over_three(job: TrainingJob) -> Iterator[Problem]:
        if any(group.replicas == 3 for group in job.replica_specs):
            raise KeyError("a bug")
        yield from ()

    framework = replace(TENSORFLOW, rules=[*TENSORFLOW.rules, stumbles_over_three])
    await stage.node("n", **{GPU: "4"})
    options = OperatorOptions(seed=1, policy=POLICIES["fifo"], frameworks=[framework])
    stage.start(Operator(stage.world.client, stage.world.clock, options).run())
    with capture_logs():  # Dozens of tracebacks: to print them takes longer than all the rest.
        await the_story_of_an_edit(stage)


async def the_story_of_an_edit(stage: Stage) -> None:
    await stage.submit("holder", Worker=group(2, **{GPU: "1"}))
    await stage.submit("waiter", Worker=group(5, **{GPU: "1"}))
    await stage.world.until(lambda: (stage.admission("waiter").get("wait") or {}).get("code") == NEVER_FITS)
    await stage.until_pods("holder-worker-0", "holder-worker-1")
    for name in ("holder", "waiter"):
        spec = {"tfReplicaSpecs": {"Worker": {"replicas": 3}}}
        await stage.world.client.patch(TFJOBS, Key("default", name), {"spec": spec})
    await stage.world.until(lambda: stage.admission("waiter")["wait"]["code"] == SCHEDULER_ERROR)
    assert "could not read it: KeyError: 'a bug'" in stage.admission("waiter")["wait"]["message"]
    await stage.submit("unborn", Worker=group(3, **{GPU: "1"}))
    await stage.submit("other", Worker=group(2, **{GPU: "1"}))
    await stage.until_pods("holder-worker-0", "holder-worker-1", "other-worker-0", "other-worker-1")
