"""Nodes whose device plugin knows only whole GPUs, with hollow kubelets, and an operator that holds GPUs by anchors.

These kubelets refuse shares of GPUs that no anchor holds.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tarragon.base.resources import CPU, MEMORY, NVIDIA_GPU
from tarragon.base.resources import PODS as POD_SLOTS
from tarragon.client.errors import AlreadyExists, ApiError
from tarragon.client.port import Client
from tarragon.kube.core import NAMESPACES, PODS
from tarragon.kube.meta import Key
from tarragon.localcluster.kubelet.hollow.kubelet import HollowKubelet, HollowSettings
from tarragon.operator.manager.operator import Operator, OperatorOptions
from tarragon.plan.objects.gpu_anchors import AnchorSettings
from tarragon.plan.objects.settings import OperatorSettings
from tests.operator.stage import TFJOBS, Json, Stage, group

SYSTEM = "tarragon-system"
UUID, VGPU = "tarragon.dev/gpu-uuid", "tarragon.dev/vgpu"
GI = 2**30


def shared(replicas: int, request: str, *, policy: str = "Never", **resources: str) -> Json:
    """A group whose replicas each have a share of a GPU."""
    made = group(replicas, policy=policy, **resources)
    annotations = {"kubeshare/gpu_request": request, "kubeshare/gpu_limit": "1"}
    return {**made, "template": {"metadata": {"annotations": annotations}, **made["template"]}}


@asynccontextmanager
async def gpu_nodes(stage: Stage, *names: str, gpus: int = 2, **labels: str) -> AsyncIterator[None]:
    await make_namespace(stage)
    settings = HollowSettings(
        names=names,
        capacity={CPU: 64_000, MEMORY: 256 * GI * 1000, POD_SLOTS: 110_000, NVIDIA_GPU: gpus * 1000},
        labels={
            "tarragon.dev/gpu-sharing": "anchor",
            "nvidia.com/gpu.memory": "81920",
            **{f"tarragon.dev/{name}": value for name, value in labels.items()},
        },
    )
    kubelet = HollowKubelet(stage.world.client, settings, stage.world.clock)
    task = asyncio.create_task(kubelet.run())
    await kubelet.registered()
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def make_namespace(stage: Stage) -> None:
    with contextlib.suppress(AlreadyExists):
        await stage.world.client.create(NAMESPACES, {"metadata": {"name": SYSTEM}})


def start_operator(stage: Stage, client: Client | None = None, **settings: Any) -> None:
    """Start an operator, until the end of the test."""
    stage.keep(an_operator(stage, client, OperatorOptions(seed=1, settings=anchor_settings(**settings))))


def an_operator(stage: Stage, client: Client | None, options: OperatorOptions) -> asyncio.Task[None]:
    """Start one that the test may kill."""
    return asyncio.create_task(Operator(client or stage.world.client, stage.world.clock, options).run())


def anchor_settings(**settings: Any) -> OperatorSettings:
    return OperatorSettings(gpu_anchors=AnchorSettings(namespace=SYSTEM), **settings)


def anchors(stage: Stage) -> Mapping[str, Json]:
    prefix = f"pods/{SYSTEM}/"
    return {what.removeprefix(prefix): found for what, found in stage.world.objects.items() if what.startswith(prefix)}


def gpu_of(pod: Json) -> str:
    return str(pod["metadata"].get("annotations", {}).get(UUID, ""))


def variables(container: Json) -> Mapping[str, str]:
    return {each["name"]: each.get("value", "") for each in container["env"]}


def runs(stage: Stage, job: str, workers: int) -> bool:
    names = [f"{job}-worker-{index}" for index in range(workers)]
    return all(stage.pods().get(name, {}).get("status", {}).get("phase") == "Running" for name in names)


async def until_run(stage: Stage, job: str, workers: int) -> None:
    await stage.world.until(lambda: runs(stage, job, workers))


async def delete(stage: Stage, job: str) -> None:
    """Delete a job with its pods: the stage has no garbage collector."""
    await stage.world.client.delete(TFJOBS, Key("default", job))
    for name in [name for name in stage.pods() if name.startswith(f"{job}-")]:
        with contextlib.suppress(ApiError):
            await stage.world.client.delete(PODS, Key("default", name))


def condition(stage: Stage, job: str, kind: str) -> Json:
    found: Sequence[Json] = (stage.job(job).get("status") or {}).get("conditions") or []
    return next((each for each in found if each["type"] == kind), {})


def blocked(stage: Stage, job: str) -> str:
    """The reason and the message of the condition Blocked."""
    found = condition(stage, job, "Blocked")
    return f"{found['reason']}: {found['message']}" if found else ""
