"""Each code of a wait, brought about for real: it is on the job's record, and is the reason of its condition."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tarragon.job.model import ReplicaSpec
from tarragon.kube.core import NODES, PRIORITY_CLASSES
from tarragon.kube.meta import Key
from tarragon.operator.manager.operator import Operator, OperatorOptions
from tarragon.plan.nodes.replica_requests import group_request
from tarragon.scheduling.api import decision
from tarragon.scheduling.api.rules import QueueRules, SchedulingRules
from tarragon.scheduling.policies import POLICIES
from tests.operator.stage import Stage, a_stage, group

GPU = "nvidia.com/gpu"
Json = dict[str, Any]


def workers(number: int, priority: str = "") -> Json:
    found = group(number, **{GPU: "1"})
    if priority:
        found["template"]["spec"]["priorityClassName"] = priority
    return found


def operates(stage: Stage, policy: str = "fifo", rules: Callable[[], SchedulingRules] = SchedulingRules) -> None:
    options = OperatorOptions(seed=1, policy=POLICIES[policy], rules=rules)
    stage.start(Operator(stage.world.client, stage.world.clock, options).run())


async def runs(stage: Stage, name: str, number: int, **more: Any) -> None:
    pods = [f"{name}-worker-{index}" for index in range(number)]
    await stage.submit(name, Worker=workers(number), **more)
    await stage.world.until(lambda: set(pods) <= set(stage.pods()))
    await stage.all_run(*pods)


async def waits_with(stage: Stage, name: str, code: str) -> None:
    """On record, and the same as a condition and as the word of the columns."""

    def is_told() -> bool:
        status = stage.job(name).get("status") or {}
        said = [each for each in status.get("conditions", ()) if each["type"] == "Admitted"]
        told = [(each["status"], each["reason"]) for each in said]
        return told == [("False", code)] and status["tarragon"].get("reason") == code

    await stage.world.until(lambda: (stage.admission(name).get("wait") or {}).get("code") == code)
    await stage.world.until(is_told)


@asynccontextmanager
async def four_gpus(folder: Path) -> AsyncIterator[Stage]:
    async with a_stage(folder) as stage:
        await stage.node("a", **{GPU: "4"})
        yield stage


async def test_never_fits(tmp_path: Path) -> None:
    async with four_gpus(tmp_path) as stage:
        operates(stage)
        await stage.submit("job", Worker=workers(5))
        await waits_with(stage, "job", decision.NEVER_FITS)


async def test_nodes_away(tmp_path: Path) -> None:
    async with four_gpus(tmp_path) as stage:
        await stage.world.client.patch(NODES, Key("", "a"), {"spec": {"unschedulable": True}})
        operates(stage)
        await stage.submit("job", Worker=workers(4))
        await waits_with(stage, "job", decision.NODES_UNAVAILABLE)


async def test_insufficient_resources_and_behind_others(tmp_path: Path) -> None:
    async with four_gpus(tmp_path) as stage:
        operates(stage)
        await runs(stage, "first", 3)
        await stage.submit("head", Worker=workers(2))
        await waits_with(stage, "head", decision.INSUFFICIENT_RESOURCES)
        await stage.submit("next", Worker=workers(1))
        await waits_with(stage, "next", decision.BEHIND_OTHERS)


async def test_resources_releasing(tmp_path: Path) -> None:
    """The pods have been told to end, and nobody ends them yet."""
    async with four_gpus(tmp_path) as stage:
        operates(stage, "dragon", lambda: SchedulingRules(starvation_seconds=0.2))
        await runs(stage, "elastic", 4, **{"min-instances": 2, "max-instances": 4})
        await stage.submit("job", Worker=workers(2))
        await waits_with(stage, "job", decision.RESOURCES_RELEASING)


async def test_queue_quota_exceeded(tmp_path: Path) -> None:
    async with four_gpus(tmp_path) as stage:
        operates(stage, rules=lambda: SchedulingRules(queues={"default": QueueRules(quota={GPU: 2000})}))
        await runs(stage, "first", 1)
        await stage.submit("job", Worker=workers(2))
        await waits_with(stage, "job", decision.QUOTA_EXCEEDED)


async def test_preempted(tmp_path: Path) -> None:
    """The next cycle replaces the code, maybe before anybody has read it; the condition `Evicted` remains."""

    def evicted(stage: Stage) -> list[str]:
        conditions = (stage.job("meek").get("status") or {}).get("conditions", ())
        return [each["reason"] for each in conditions if each["type"] == "Evicted"]

    async with four_gpus(tmp_path) as stage:
        await stage.world.create(PRIORITY_CLASSES, "urgent", namespace="", value=1000)
        operates(stage)
        await runs(stage, "meek", 4)
        await stage.submit("loud", Worker=workers(3, "urgent"))
        await stage.world.until(lambda: evicted(stage) == [decision.PREEMPTED])


async def test_scheduler_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug that only one job brings to light."""

    def broken(group: ReplicaSpec) -> Any:
        if group.replicas == 3:
            raise KeyError("a bug")
        return group_request(group)

    monkeypatch.setattr("tarragon.operator.scheduler.snapshot.demand_cache.group_request", broken)
    async with four_gpus(tmp_path) as stage:
        operates(stage)
        await stage.submit("job", Worker=workers(3))
        await waits_with(stage, "job", decision.SCHEDULER_ERROR)
        await runs(stage, "other", 1)


def test_no_code_is_without_a_test() -> None:
    told = {name.removeprefix("test_").replace("_", "") for name in globals() if name.startswith("test_")}
    codes = {value for name, value in vars(decision).items() if name.isupper() and isinstance(value, str)}

    assert {code for code in codes if " " not in code and not any(code.lower() in name for name in told)} == set()
