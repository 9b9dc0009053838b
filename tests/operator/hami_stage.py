"""Nodes whose GPUs HAMi shares, with hollow kubelets, and what stands in for HAMi's scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from tarragon.base.resources import CPU, MEMORY, NVIDIA_GPU
from tarragon.base.resources import PODS as POD_SLOTS
from tarragon.client.errors import ApiError
from tarragon.kube.core import NODES, PODS
from tarragon.kube.meta import Key
from tarragon.localcluster.kubelet.hollow.kubelet import HollowKubelet, HollowSettings
from tests.hami import REGISTER, SCHEDULER, SPLIT, HamiScheduler, registered, taken
from tests.operator.stage import Json, Stage

GI = 2**30
UUID, VGPU = "tarragon.dev/gpu-uuid", "tarragon.dev/vgpu"


@asynccontextmanager
async def hami_nodes(stage: Stage, *names: str, gpus: int = 2, mib: int = 16384) -> AsyncIterator[None]:
    """Nodes with that many GPUs, each of which the device plugin offers ten times."""
    capacity = {CPU: 64_000, MEMORY: 256 * GI * 1000, POD_SLOTS: 110_000, NVIDIA_GPU: gpus * SPLIT * 1000}
    labels = {"tarragon.dev/gpu-sharing": "hami", "nvidia.com/gpu.memory": str(mib)}
    settings = HollowSettings(names=names, capacity=capacity, labels=labels)
    kubelet = HollowKubelet(stage.world.client, settings, stage.world.clock)
    task = asyncio.create_task(kubelet.run())
    await kubelet.registered()
    for name in names:
        await register(stage, name, registered(name, gpus, mib))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def register(stage: Stage, node: str, text: str) -> None:
    """As HAMi's device plugin reports the GPUs of a node."""
    await stage.world.client.patch(NODES, Key("", node), {"metadata": {"annotations": {REGISTER: text}}})


@asynccontextmanager
async def hami_scheduler(stage: Stage) -> AsyncIterator[HamiScheduler]:
    """It binds pods to the node that their affinity names, until the end of the block."""
    scheduler = HamiScheduler(stage.world.client)
    task = asyncio.create_task(_bind_pods(stage, scheduler))
    try:
        yield scheduler
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _bind_pods(stage: Stage, scheduler: HamiScheduler) -> None:
    while True:
        for pod in list(all_pods(stage).values()):
            if pod["spec"].get("schedulerName") == SCHEDULER and "nodeName" not in pod["spec"]:
                with suppress(ApiError):
                    await _bind(stage, scheduler, pod)
        await stage.world.clock.sleep(0.05)


async def _bind(stage: Stage, scheduler: HamiScheduler, pod: Json) -> None:
    key = Key(pod["metadata"]["namespace"], pod["metadata"]["name"])
    node, failed = await scheduler.filter(pod, [pinned(pod)])
    if node:
        await scheduler.bind(key, pod["metadata"]["uid"], node)
        return
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "; ".join(failed.values()),
    }
    if condition not in pod.get("status", {}).get("conditions", []):
        await stage.world.client.patch(PODS, key, {"status": {"conditions": [condition]}}, subresource="status")


def pinned(pod: Json) -> str:
    """The node that the pod's affinity names."""
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = required["nodeSelectorTerms"]
    (field,) = term["matchFields"]
    (name,) = field["values"]
    return str(name)


def all_pods(stage: Stage) -> Mapping[str, Json]:
    return {what: found for what, found in stage.world.objects.items() if what.startswith("pods/")}


def given(pod: Json) -> set[str]:
    """The UUIDs that HAMi has chosen for a pod."""
    return {name for name, _, _ in taken(pod)}


def named(pod: Json) -> set[str]:
    """The UUIDs that the operator has named."""
    return set(filter(None, pod["metadata"].get("annotations", {}).get(UUID, "").split(",")))


def limits(pod: Json) -> Mapping[str, Any]:
    """Those of the first container that are HAMi's."""
    found = pod["spec"]["containers"][0]["resources"]["limits"]
    return {name.removeprefix("nvidia.com/"): value for name, value in found.items() if name.startswith("nvidia.com/")}
