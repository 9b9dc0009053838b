"""Jobs that are restarted to grow get all that they wish for, or nothing: every other step would cost a restart."""

from __future__ import annotations

import datetime as dt

from tarragon.base.resources import NVIDIA_GPU
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.job.model import Replica
from tarragon.scheduling.api.decision import Resize
from tarragon.scheduling.api.snapshot import Demand, NodeState, RunningGang, Snapshot
from tarragon.scheduling.policies.fifo import fifo
from tests.scheduling.scenes import afresh


def running(name: str, wish: int, *, whole: bool) -> RunningGang:
    demand = Demand(
        type=WORKER, resources={NVIDIA_GPU: 1}, minimum=wish, requested=wish, eligible_nodes=frozenset({"a"})
    )
    return RunningGang(
        name=name, demands=[demand], nodes={Replica(WORKER, 0): "a"}, is_elastic=True, resizes_by_restart=whole
    )


def grown(free: int, *gangs: RunningGang) -> dict[str, int]:
    node = NodeState(name="a", capacity={NVIDIA_GPU: 8}, free={NVIDIA_GPU: free})
    decisions = afresh(fifo)(Snapshot(now=dt.datetime(2026, 1, 1, tzinfo=dt.UTC), nodes=[node], running=gangs))
    return {decision.gang: len(decision.nodes) for decision in decisions if isinstance(decision, Resize)}


def test_a_job_that_restarts_to_grow_does_so_in_one_go() -> None:
    assert grown(1, running("job", 3, whole=True)) == {}
    assert grown(2, running("job", 3, whole=True)) == {"job": 3}


def test_the_room_that_is_too_little_for_one_is_there_for_the_next() -> None:
    assert grown(1, running("first", 3, whole=True), running("second", 3, whole=False)) == {"second": 2}
