"""Operators that live for a few writes each, and stop while others are under way: the next one goes on."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tarragon.client.informer.informer import Informer
from tarragon.client.middleware.delegating import DelegatingClient
from tarragon.client.port import Client
from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.kube.core import NODES, PODS, PRIORITY_CLASSES
from tarragon.operator.informers.cache_transforms import CachedJob, CachedPod
from tarragon.operator.manager.operator import Operator, OperatorOptions
from tarragon.scheduling.api.rules import SchedulingRules
from tarragon.scheduling.policies import POLICIES
from tests.operator.stage import TFJOBS, Json, Stage, group
from tests.recording.gangs import GangRecord, record_caches

SOON = SchedulingRules(starvation_seconds=0.0, idle_seconds=0.1, cool_down_seconds=0.0)
"""What takes a minute elsewhere is decided at once."""
SHORT = ("whole", "urgent")
"""Jobs whose replicas have nothing to do but to begin."""


FEW = 40
"""Writes that the story takes at the very least."""


class Mortal(DelegatingClient):
    """The way of one operator to the API, until it has written so many times: after that nothing of it arrives."""

    def __init__(self, client: Client, writes: int) -> None:
        super().__init__(client)
        self._left = writes
        self.is_over = asyncio.Event()

    async def create(self, *what: Any, **how: Any) -> Any:
        return await self._write(super().create, what, how)

    async def patch(self, *what: Any, **how: Any) -> Any:
        return await self._write(super().patch, what, how)

    async def delete(self, *what: Any, **how: Any) -> Any:
        return await self._write(super().delete, what, how)

    async def _write(self, write: Any, what: Any, how: Any) -> Any:
        if self._left == 0:
            await asyncio.Event().wait()
        self._left -= 1
        try:
            written = await write(*what, **how)
        finally:
            if self._left == 0:
                self.is_over.set()
        if self._left == 0:
            await asyncio.Event().wait()
        return written


async def one_after_the_other(stage: Stage, writes: int, deaths: list[int]) -> None:
    """Operators that each live for so many writes; the one that has nothing to write lives on."""
    options = OperatorOptions(seed=1, policy=POLICIES["dragon"], rules=lambda: SOON)
    while True:
        mortal = Mortal(stage.world.client, writes)
        async with asyncio.TaskGroup() as tasks:
            operator = tasks.create_task(Operator(mortal, stage.world.clock, options).run())
            await mortal.is_over.wait()
            operator.cancel()
        deaths.append(writes)


async def kubelet(stage: Stage) -> None:
    """Pods run as soon as they are there; those of some jobs end as soon as they run; who is to end, ends."""

    def unheard() -> Mapping[str, Json]:
        return {
            name: pod
            for name, pod in stage.pods().items()
            if pod["metadata"].get("deletionTimestamp") or pod.get("status", {}).get("phase", "Pending") == "Pending"
        }

    while True:
        await stage.world.until(lambda: bool(unheard()))
        await stage.end_pods()
        for name in [name for name, pod in unheard().items() if not pod["metadata"].get("deletionTimestamp")]:
            with contextlib.suppress(Exception):  # It has just been deleted.
                if name.startswith(SHORT):
                    await stage.plays(name, "Succeeded", 0)
                else:
                    await stage.plays(name, "Running")


@asynccontextmanager
async def a_record(stage: Stage) -> AsyncIterator[GangRecord]:
    record, client, clock = GangRecord(), stage.world.client, stage.world.clock
    jobs: Informer[Any] = Informer(client, TFJOBS.with_model(CachedJob), clock, jitter=random.Random(1))
    pods: Informer[Any] = Informer(client, PODS.with_model(CachedPod), clock, jitter=random.Random(1))
    nodes: Informer[Any] = Informer(client, NODES, clock, jitter=random.Random(1))
    record_caches(record, clock, jobs={TENSORFLOW: jobs}, pods=pods, nodes=nodes)
    tasks = [asyncio.create_task(cache.run()) for cache in (nodes, jobs, pods)]
    for cache in (nodes, jobs, pods):
        await cache.wait_for_sync()
    try:
        yield record
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        record.end(clock.monotonic())


def runs_with(stage: Stage, name: str, workers: int) -> bool:
    there = {f"{name}-worker-{index}" for index in range(workers)}
    mine = {pod for pod in stage.pods() if pod.startswith(f"{name}-")}
    return mine == there and stage.state(name) == "Running"


@pytest.mark.parametrize("writes", [1, 2, 3])
async def test_starts_a_shrink_an_eviction_and_growth_survive_a_death_after_every_write(
    stage: Stage, writes: int
) -> None:
    urgent = {"runPolicy": {"schedulingPolicy": {"priorityClass": "high"}}}
    await stage.world.create(PRIORITY_CLASSES, "high", namespace="", value=1000)
    await stage.node("n", cpu="4")
    async with a_record(stage) as record:
        deaths: list[int] = []
        stage.start(one_after_the_other(stage, writes, deaths))
        stage.start(kubelet(stage))
        elastic: Any = {"min-instances": 1, "max-instances": 4}
        await stage.submit("lasting", Worker=group(2, cpu="1", policy="OnFailure"), **elastic)
        await stage.world.until(lambda: runs_with(stage, "lasting", 4))

        await stage.submit("whole", Worker=group(3, cpu="1"))
        await stage.until_state("whole", "Succeeded")
        await stage.world.until(lambda: runs_with(stage, "lasting", 4))

        await stage.submit("urgent", Worker=group(4, cpu="1"), **urgent)
        await stage.until_state("urgent", "Succeeded")
        await stage.world.until(lambda: runs_with(stage, "lasting", 4))
    assert sum(deaths) > FEW
    assert not record.oversold
    assert record.partial.total == 0
    sizes = record.sizes["lasting"]
    assert min(sizes) == 1
    assert sizes[-1] == 4
