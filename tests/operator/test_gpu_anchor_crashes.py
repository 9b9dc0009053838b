"""Operators that die after every few writes: no GPU stays held, and none is given to pods and to others as well."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tarragon.base.resources import NVIDIA_GPU
from tarragon.client.errors import ApiError
from tarragon.client.informer.informer import Informer
from tarragon.client.middleware.delegating import DelegatingClient
from tarragon.client.port import Client
from tarragon.job.places import node_of
from tarragon.kube.core import PODS, Pod
from tarragon.kube.meta import Key
from tarragon.kube.scheduling.gpu_shares import GPU_UUID_ANNOTATION, share_of_pod
from tarragon.kube.scheduling.pod_requests import scheduling_request
from tarragon.operator.informers.cache_transforms import CachedPod
from tarragon.operator.manager.operator import OperatorOptions
from tarragon.plan.objects.gpu_anchors import anchor_place
from tarragon.scheduling.api.rules import SchedulingRules
from tarragon.scheduling.policies import POLICIES
from tests.operator.anchor_stage import (
    SYSTEM,
    an_operator,
    anchor_settings,
    anchors,
    delete,
    gpu_nodes,
    shared,
    until_run,
)
from tests.operator.stage import Stage, group

SOON = SchedulingRules(starvation_seconds=0.0, idle_seconds=0.1, cool_down_seconds=0.0)
GPUS = 2
FEW = 25
"""Writes that the story takes at the very least."""


class Mortal(DelegatingClient):
    """The API for one operator, until it has written so many times. Its last write may come late: after its death."""

    def __init__(self, client: Client, writes: int, delay: float) -> None:
        super().__init__(client)
        self._left = writes
        self._delay = delay
        self._late: list[asyncio.Task[Any]] = []
        self.is_over = asyncio.Event()

    async def create(self, *what: Any, **how: Any) -> Any:
        return await self._write(super().create, what, how)

    async def patch(self, *what: Any, **how: Any) -> Any:
        return await self._write(super().patch, what, how)

    async def delete(self, *what: Any, **how: Any) -> Any:
        return await self._write(super().delete, what, how)

    async def _write(self, write: Callable[..., Any], what: Any, how: Any) -> Any:
        if self._left == 0:
            await asyncio.Event().wait()
        self._left -= 1
        if self._left:
            return await write(*what, **how)
        self._late.append(asyncio.create_task(self._write_late(write, what, how)))
        return await asyncio.Event().wait()

    async def _write_late(self, write: Callable[..., Any], what: Any, how: Any) -> None:
        if self._delay:
            self.is_over.set()
            await asyncio.sleep(self._delay)  # noqa: TID251 - the request is under way
        with contextlib.suppress(ApiError):
            await write(*what, **how)
        self.is_over.set()


class GpuRecord:
    """Watches the pods, and notes each moment at which a GPU was not held for those that use it, or sold twice."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self._pods: dict[Key, Pod] = {}

    def changed(self, key: Key, _: Pod | None, new: Pod | None) -> None:
        if new is None:
            self._pods.pop(key, None)
        else:
            self._pods[key] = new
        running = [pod for pod in self._pods.values() if pod.status.phase == "Running"]
        held: dict[str, Pod] = {}
        whole: defaultdict[str, int] = defaultdict(int)
        for pod in running:
            place = anchor_place(pod, SYSTEM)
            whole[pod.spec.node_name] += scheduling_request(pod.spec).get(NVIDIA_GPU, 0) // 1000
            if place is None:
                continue
            if place in held:
                self.faults.append(f"two anchors hold {place}")
            held[place] = pod
        self._check_shares([pod for pod in running if anchor_place(pod, SYSTEM) is None], held)
        self.faults += [f"{count} GPUs of {node} are held" for node, count in whole.items() if count > GPUS]

    def _check_shares(self, pods: list[Pod], held: Mapping[str, Pod]) -> None:
        gpu_of = {place: pod.metadata.annotations.get(GPU_UUID_ANNOTATION, "") for place, pod in held.items()}
        used: defaultdict[str, int] = defaultdict(int)
        for pod in pods:
            uuid = pod.metadata.annotations.get(GPU_UUID_ANNOTATION)
            if uuid is None:
                continue
            if uuid not in {gpu for place, gpu in gpu_of.items() if node_of(place) == pod.spec.node_name}:
                self.faults.append(f"no anchor holds the GPU of {pod.metadata.key}")
            share = share_of_pod(pod)
            used[uuid] += 0 if share is None else share.request
        self.faults += [f"{amount} thousandths of {uuid} are used" for uuid, amount in used.items() if amount > 1000]


@asynccontextmanager
async def a_record(stage: Stage) -> AsyncIterator[GpuRecord]:
    record = GpuRecord()
    resource = PODS.with_model(CachedPod)
    pods: Informer[Any] = Informer(stage.world.client, resource, stage.world.clock, jitter=random.Random(1))
    pods.add_event_handler(record.changed)
    task = asyncio.create_task(pods.run())
    await pods.wait_for_sync()
    try:
        yield record
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def one_after_the_other(stage: Stage, writes: int, delay: float, deaths: list[int]) -> None:
    """Run operators that each live for so many writes; the one that has nothing to write lives on."""
    options = OperatorOptions(seed=1, settings=anchor_settings(), policy=POLICIES["dragon"], rules=lambda: SOON)
    while True:
        mortal = Mortal(stage.world.client, writes, delay)
        operator = an_operator(stage, mortal, options)
        try:
            await mortal.is_over.wait()
        finally:
            await stage.kill(operator)
        deaths.append(writes)


async def collect_garbage(stage: Stage) -> None:
    """Delete pods whose job is gone, also those that were requested before and come late."""

    def orphans() -> list[str]:
        jobs = {what.rpartition("/")[2] for what in stage.world.objects if what.startswith("tfjobs/")}
        pods = stage.pods().items()
        return [
            name
            for name, pod in pods
            if name.partition("-")[0] not in jobs and "deletionTimestamp" not in pod["metadata"]
        ]

    while True:
        await stage.world.until(lambda: bool(orphans()))
        await asyncio.sleep(0.02)  # noqa: TID251 - the record of deletes is behind
        for name in orphans():
            with contextlib.suppress(ApiError):
                await stage.world.client.delete(PODS, Key("default", name))


async def until_gone(stage: Stage, job: str) -> None:
    await delete(stage, job)
    await stage.world.until(lambda: not any(name.startswith(f"{job}-") for name in stage.pods()))


@pytest.mark.parametrize(("writes", "delay"), [(1, 0.0), (2, 0.0), (3, 0.0), (1, 0.05), (2, 0.3)])
async def test_no_gpu_is_lost_or_sold_twice_when_operators_die_after_every_write(
    stage: Stage, writes: int, delay: float
) -> None:
    deaths: list[int] = []
    async with gpu_nodes(stage, "n", gpus=GPUS), a_record(stage) as record:
        stage.start(one_after_the_other(stage, writes, delay, deaths))
        stage.start(collect_garbage(stage))
        await stage.submit("a", Worker=shared(2, "0.6", policy="OnFailure"))
        await stage.submit("b", Worker=shared(2, "0.4", policy="OnFailure"))
        await until_run(stage, "b", 2)
        await until_gone(stage, "a")
        await stage.submit("c", Worker=shared(4, "0.3", policy="OnFailure"))
        await until_run(stage, "c", 4)
        await until_gone(stage, "b")
        await until_gone(stage, "c")
        await stage.submit("whole", Worker=group(1, policy="OnFailure", **{NVIDIA_GPU: str(GPUS)}))
        await until_run(stage, "whole", 1)
        assert not anchors(stage)
        await until_gone(stage, "whole")
        await stage.submit("d", Worker=shared(4, "0.5", policy="OnFailure"))
        await until_run(stage, "d", 4)
        await until_gone(stage, "d")
        await stage.world.until(lambda: not anchors(stage))

    assert sum(deaths) > FEW
    assert not record.faults
    refused = [event for event in stage.events("Failed") if "anchor" in event]
    assert not refused
