"""DRAGON's own manifests, as they were published, scheduled as its README says, by the operator on the embedded API."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from tarragon.base.clock import SystemClock
from tarragon.kube.meta import Key
from tarragon.operator.manager.operator import Operator, OperatorOptions
from tarragon.scheduling.policies import POLICIES
from tests.operator.stage import TFJOBS, Stage

MANIFESTS = Path(__file__).parents[1] / "data" / "manifests"


class Jumping(SystemClock):
    """Goes as time does, and jumps when a test says so: who sleeps until then wakes."""

    def __init__(self) -> None:
        super().__init__()
        self._ahead = 0.0
        self._bell = asyncio.Event()

    def now(self) -> dt.datetime:
        return super().now() + dt.timedelta(seconds=self._ahead)

    def monotonic(self) -> float:
        return super().monotonic() + self._ahead

    async def sleep(self, seconds: float) -> None:
        until = self.monotonic() + seconds
        while (left := until - self.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._bell.wait()

    def jump(self, seconds: float) -> None:
        self._ahead += seconds
        self._bell.set()
        self._bell = asyncio.Event()


def start(stage: Stage) -> Jumping:
    clock = Jumping()
    stage.start(Operator(stage.world.client, clock, OperatorOptions(seed=1, policy=POLICIES["dragon"])).run())
    return clock


async def submit(stage: Stage, manifest: str, name: str) -> None:
    body = yaml.safe_load((MANIFESTS / f"002-dragon-{manifest}.yaml").read_text())
    body["metadata"] = {"name": name, "namespace": "default"}
    await stage.world.client.create(TFJOBS, body)


def where(stage: Stage, name: str) -> Mapping[str, str]:
    """The node of each pod of a job that is not on its way out, by what comes after the name of the job."""
    return {
        pod.removeprefix(f"{name}-"): found["spec"]["nodeName"]
        for pod, found in stage.pods().items()
        if pod.startswith(f"{name}-") and "deletionTimestamp" not in found["metadata"]
    }


def workers(stage: Stage, name: str) -> int:
    return sum(pod.startswith("worker-") for pod in where(stage, name))


def waits(stage: Stage, name: str) -> str:
    return str((stage.admission(name).get("wait") or {}).get("code", ""))


async def sizes(stage: Stage, **expected: int) -> None:
    """Pods that are told to end do so at once."""

    def claim() -> bool:
        return {name: workers(stage, name) for name in expected} == expected

    async with asyncio.timeout(60):
        while not claim():
            await stage.end_pods()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    await stage.world.until(claim)


async def sizes_once_idle(stage: Stage, clock: Jumping, **expected: int) -> None:
    """Nodes idle from when the operator looks at them, which may be after the first jump."""
    for wait in (10, 60):
        clock.jump(61)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait):
                await sizes(stage, **expected)
                return
    pytest.fail(f"after two idle minutes there are not {expected} workers")


async def all_run(stage: Stage, name: str) -> None:
    await stage.all_run(*(f"{name}-{pod}" for pod in where(stage, name)))


async def end(stage: Stage, name: str) -> None:
    await stage.world.client.delete(TFJOBS, Key("default", name))
    for pod in where(stage, name):
        await stage.plays(f"{name}-{pod}", "Succeeded", 0)


async def test_three_of_its_jobs_on_cpus_and_a_fourth_for_which_they_shrink(stage: Stage) -> None:
    await stage.node("a", cpu="20", memory="40Gi")
    await stage.node("b", cpu="20", memory="40Gi")
    await stage.node("c", cpu="12", memory="40Gi")
    clock = start(stage)

    for name, number in (("job1", 4), ("job2", 4), ("job3", 2)):
        await submit(stage, "cpu", name)
        await sizes(stage, **{name: number})
        await all_run(stage, name)
    # All replicas of a job within one node, as many workers as there is room for.
    assert {name: set(where(stage, name).values()) for name in ("job1", "job2", "job3")} == {
        "job1": {"a"},
        "job2": {"b"},
        "job3": {"c"},
    }

    await submit(stage, "cpu", "job4")
    await stage.world.until(lambda: waits(stage, "job4") == "InsufficientResources")
    clock.jump(31)
    # One worker and a parameter server, 8 CPUs: the two that have most above their minimum give one worker each.
    await sizes(stage, job1=3, job2=3, job3=2, job4=1)
    assert stage.admission("job2")["reason"] == "made room for TFJob default/job4"
    assert set(where(stage, "job4").values()) == {"a", "b"}
    assert where(stage, "job1").keys() == {"ps-0", "worker-0", "worker-1", "worker-2"}
    await all_run(stage, "job4")

    await end(stage, "job1")
    await stage.world.until(lambda: "tfjobs/default/job1" not in stage.world.objects)
    # Four places for six workers that are wanted: first to whoever has the smallest part of its four.
    await sizes_once_idle(stage, clock, job2=4, job3=3, job4=3)
    await stage.world.until(lambda: stage.admission("job4").get("reason") == "nodes are idle")


async def test_its_jobs_on_gpus_shrink_by_the_lonely_and_grow_beside_the_parameter_server(stage: Stage) -> None:
    await stage.node("gpu1", cpu="64", memory="256Gi", **{"nvidia.com/gpu": "3"})
    await stage.node("gpu2", cpu="64", memory="256Gi", **{"nvidia.com/gpu": "3"})
    clock = start(stage)

    for name, number in (("job1", 4), ("job2", 2)):
        await submit(stage, "nvidia-gpu", name)
        await sizes(stage, **{name: number})
        await all_run(stage, name)
    first = where(stage, "job1")
    lonely = {pod for pod, node in first.items() if node != first["ps-0"]}
    assert len(lonely) == 1, "no node takes all four: as many as possible beside the parameter server"

    await submit(stage, "nvidia-gpu", "job3")
    await stage.world.until(lambda: waits(stage, "job3") == "InsufficientResources")
    clock.jump(31)
    await sizes(stage, job1=3, job2=2, job3=1)
    assert set(first) - set(where(stage, "job1")) == lonely
    await all_run(stage, "job3")

    await end(stage, "job2")
    await stage.world.until(lambda: "tfjobs/default/job2" not in stage.world.objects)
    await sizes_once_idle(stage, clock, job1=3, job3=3)
    grown = where(stage, "job3")
    assert set(grown.values()) == {grown["ps-0"]}
