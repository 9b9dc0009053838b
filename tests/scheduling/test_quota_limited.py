"""Whom the quota of a namespace keeps smaller than it wishes, and whom something else."""

from __future__ import annotations

import datetime as dt

import pytest

from tarragon.base.resources import CPU, NVIDIA_GPU
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.job.model import Replica
from tarragon.scheduling.actions.quota_limited import exceeded_quota
from tarragon.scheduling.api.rules import QueueRules, SchedulingRules
from tarragon.scheduling.api.snapshot import Demand, RunningGang, Snapshot
from tarragon.scheduling.cycle.shares import QueueUsage

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


def runs(name: str, size: int, wish: int, *, whole: bool = False, elastic: bool = True) -> RunningGang:
    """Each worker asks for a GPU and two CPUs."""
    kind = WORKER
    demand = Demand(
        type=kind, resources={NVIDIA_GPU: 1000, CPU: 2000}, minimum=1, requested=wish, eligible_nodes=frozenset("a")
    )
    nodes = {Replica(kind, index): "a" for index in range(size)}
    return RunningGang(
        name=name, demands=[demand], nodes=nodes, is_elastic=elastic, resizes_by_restart=whole, queue="team"
    )


def quota_messages(quota: dict[str, int], *gangs: RunningGang) -> dict[str, str]:
    rules = SchedulingRules(queues={"team": QueueRules(quota=quota)})
    usage = QueueUsage(Snapshot(now=NOON, nodes=(), running=gangs, rules=rules))
    return {gang.name: message for gang in gangs if (message := exceeded_quota(gang, usage))}


def test_only_what_is_used_up_is_named() -> None:
    gangs = runs("a", 2, 4), runs("b", 1, 1)

    assert quota_messages({NVIDIA_GPU: 3000, CPU: 64000}, *gangs) == {"a": "the quota of team is 3 nvidia.com/gpu"}
    assert quota_messages({NVIDIA_GPU: 3000, CPU: 7000}, *gangs) == {
        "a": "the quota of team is 7 cpu, 3 nvidia.com/gpu"
    }


@pytest.mark.parametrize("quota", [{}, {NVIDIA_GPU: 4000}, {"memory": 0}])
def test_where_the_quota_would_let_it_have_another_one_it_is_not_the_quota(quota: dict[str, int]) -> None:
    assert quota_messages(quota, runs("a", 3, 4)) == {}


def test_one_that_grows_to_its_wish_or_not_at_all_is_held_back_by_a_part_of_it() -> None:
    assert quota_messages({NVIDIA_GPU: 3000}, runs("a", 2, 4, whole=True)) == {
        "a": "the quota of team is 3 nvidia.com/gpu"
    }


def test_who_has_its_wish_or_does_not_grow_is_not_told() -> None:
    assert quota_messages({NVIDIA_GPU: 2000}, runs("a", 2, 2), runs("b", 1, 2, elastic=False)) == {}


def test_what_a_quota_was_lowered_to_is_told_of_who_holds_more() -> None:
    assert quota_messages({NVIDIA_GPU: 1000}, runs("a", 2, 3)) == {"a": "the quota of team is 1 nvidia.com/gpu"}
