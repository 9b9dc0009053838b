"""That a quota keeps jobs small is mere words: many of them cost no round, and a bug in them stops nobody."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from bench.support.dict_cluster import NODES, TFJOBS, DictCluster, a_job, a_node
from tarragon.base.clock import FakeClock
from tarragon.base.resources import CPU, NVIDIA_GPU
from tarragon.kube.meta import Key
from tarragon.operator.scheduler.admission.writer import (
    MAX_MESSAGE_UPDATES,
    MAX_NEW_WAITS_PER_CYCLE,
    MESSAGE_UPDATE_SECONDS,
)
from tarragon.operator.scheduler.gang_scheduler import AdmissionConfig, GangScheduler
from tarragon.scheduling.actions.quota_limited import exceeded_quota
from tarragon.scheduling.api.rules import QueueRules, SchedulingRules
from tarragon.scheduling.api.snapshot import RunningGang
from tarragon.scheduling.cycle.shares import QueueUsage
from tarragon.scheduling.policies import POLICIES

BOUNDS: dict[str, Any] = {"min-instances": 1, "max-instances": 4}


class Team:
    """Elastic jobs with a worker each, that wish two; a quota says that this is all they get."""

    def __init__(self, jobs: int) -> None:
        self.clock = FakeClock()
        self.shelves = DictCluster(self.clock)
        self.names = [f"job-{number:04}" for number in range(jobs)]
        self.quota: dict[str, int] = {NVIDIA_GPU: 1000 * jobs}
        for number in range(jobs):
            self.shelves.put(NODES, a_node(f"n-{number:04}"))
        for name in self.names:
            self.shelves.put(TFJOBS, a_job(name, workers=1, **BOUNDS))
        conduct = AdmissionConfig(rules=lambda: SchedulingRules(queues={"default": QueueRules(quota=self.quota)}))
        world = self.shelves.new_informers()
        self.admitter = GangScheduler(self.shelves, self.clock, world, POLICIES["fifo"], conduct)  # type: ignore[arg-type]
        self.pause: float | None = None

    async def all_run(self) -> None:
        while await self.round():
            pass
        for name in self.names:
            job = self.shelves.objects[TFJOBS.plural, Key("default", name)]
            group = {**job["spec"]["tfReplicaSpecs"]["Worker"], "replicas": 2}
            self.shelves.put(TFJOBS, {**job, "spec": {**job["spec"], "tfReplicaSpecs": {"Worker": group}}})

    async def round(self) -> list[str]:
        """The jobs that it wrote."""
        before = len(self.shelves.patched)
        self.pause = await self.admitter.run_cycle()
        return self.shelves.patched[before:]

    def admission(self, name: str) -> Any:
        job = self.shelves.objects[TFJOBS.plural, Key("default", name)]
        return ((job.get("status") or {}).get("tarragon") or {}).get("admission") or {}


async def test_a_bug_in_the_words_about_one_job_is_told_once_and_all_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(gang: RunningGang, usage: QueueUsage) -> str:
        if gang.name == "TFJob default/job-0000":
            raise KeyError("a bug")
        return exceeded_quota(gang, usage)

    team = Team(2)
    await team.all_run()
    monkeypatch.setattr("tarragon.operator.scheduler.admission.quota_limited.exceeded_quota", broken)
    team.shelves.put(TFJOBS, a_job("other", workers=1, namespace="elsewhere"))
    with capture_logs() as lines:
        for _ in range(3):
            await team.round()
            team.clock.advance(MESSAGE_UPDATE_SECONDS)
    started = team.shelves.objects[TFJOBS.plural, Key("elsewhere", "other")]["status"]["tarragon"]["admission"]

    assert "admitted" in started
    assert [line["job"] for line in lines if line["event"] == "unexpected error in the scheduler"] == ["job-0000"]
    assert "wait" not in team.admission("job-0000")
    assert team.admission("job-0001")["wait"]["code"] == "QueueQuotaExceeded"

    monkeypatch.undo()
    await team.round()
    assert team.admission("job-0000")["wait"]["code"] == "QueueQuotaExceeded"


async def test_another_part_of_a_quota_that_is_used_up_is_mere_words() -> None:
    """Of two resources now one is short, now both: as others come and go, hundreds would be told each time."""
    team = Team(60)
    await team.all_run()
    assert await team.round() == team.names
    team.clock.advance(MESSAGE_UPDATE_SECONDS)
    written = []
    for half_second in range(20):
        team.quota = {**team.quota, CPU: 1_000_000_000 if half_second % 2 else 0}
        written.append(len(await team.round()))
        team.clock.advance(MESSAGE_UPDATE_SECONDS / 20)

    assert written == [2 * MAX_MESSAGE_UPDATES] + [0] * 19


async def test_thousands_that_a_quota_lets_grow_are_told_some_hundreds_a_round() -> None:
    team = Team(MAX_NEW_WAITS_PER_CYCLE + 100)
    await team.all_run()
    assert (len(await team.round()), team.pause) == (MAX_NEW_WAITS_PER_CYCLE, 0.0)
    assert len(await team.round()) == 100
    for number in range(MAX_NEW_WAITS_PER_CYCLE + 100):
        node = a_node(f"n-{number:04}")
        team.shelves.put(NODES, {**node, "spec": {**node.get("spec", {}), "unschedulable": True}})
    team.quota = {}

    assert (len(await team.round()), team.pause) == (MAX_NEW_WAITS_PER_CYCLE, 0.0)
    assert len(await team.round()) == 100
