"""Shares of GPUs on the nodes of a real control plane, where anchors hold the GPUs that device plugins hand out whole.

Nodes are lost and the operator is killed at random. A record of all pods, as the API server tells of them, is checked
apart from the operator's own code: no GPU is given away twice, no pod has one that nobody holds, and none is lost.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pytest

from tarragon.base.resources import CPU, MEMORY, NVIDIA_GPU, PODS
from tarragon.client.errors import AlreadyExists
from tarragon.client.http.client import HttpClient
from tarragon.client.port import DeleteOptions
from tarragon.kube.core import NAMESPACES, NODES, Pod
from tarragon.kube.meta import Key
from tarragon.localcluster.kubelet.hollow.kubelet import HollowKubelet, HollowSettings
from tests.real.gpu_jobs import training, until_succeeded
from tests.real.scene import Scene, connect
from tools.controlplane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(500)]

Json = dict[str, Any]
SYSTEM = "tarragon-system"
GPUS = 4
GPU_MIB = 16 * 1024
ROOM = {CPU: 32_000, MEMORY: 256 * 2**30 * 1000, PODS: 110_000, NVIDIA_GPU: GPUS * 1000}
LABELS = {"tarragon.dev/gpu-sharing": "anchor", "nvidia.com/gpu.memory": str(GPU_MIB)}
FLAGS = ("--lease-namespace", SYSTEM, "--policy", "backfill", "--patience", "20")


@dataclass
class GpuRecord:
    """Checks after each change of a pod what is held of the GPUs of its node."""

    faults: list[str] = field(default_factory=list)
    changes: int = 0
    anchors_seen: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    """Nodes that are gone, with all that was on them."""
    _pods: dict[Key, Pod] = field(default_factory=dict)

    def note(self, key: Key, _: Pod | None, new: Pod | None) -> None:
        before = self._pods.pop(key, None)
        if new is not None:
            self._pods[key] = new
        node = (new or before or Pod()).spec.node_name
        if node and node not in self.lost:
            self.changes += 1
            self.faults += [f"{node}: {fault} (after {key})" for fault in self._faults(node)]

    def anchors(self) -> list[str]:
        return sorted(key.name for key, pod in self._pods.items() if _is_anchor(pod))

    def _faults(self, node: str) -> Iterator[str]:
        pods = [pod for pod in self._pods.values() if pod.spec.node_name == node and not pod.is_finished]
        anchors = {pod.metadata.annotations.get("tarragon.dev/gpu-uuid"): pod for pod in pods if _is_anchor(pod)}
        self.anchors_seen |= {pod.metadata.uid for pod in pods if _is_anchor(pod)}
        whole = sum(_whole_gpus(pod) for pod in pods if pod.status.phase == "Running")
        if whole > GPUS:
            yield f"{whole} of {GPUS} GPUs are held"
        compute: dict[str, Fraction] = defaultdict(Fraction)
        memory: dict[str, int] = defaultdict(int)
        for pod in pods:
            annotations = pod.metadata.annotations
            if "kubeshare/gpu_request" in annotations:
                uuid = annotations.get("tarragon.dev/gpu-uuid", "")
                compute[uuid] += Fraction(annotations["kubeshare/gpu_request"])
                memory[uuid] += int(annotations["kubeshare/gpu_mem"])
                if uuid not in anchors:
                    yield f"{pod.metadata.name} has {uuid or 'no GPU'}, which no anchor holds"
        yield from (f"{uuid} is shared by {float(part):g}" for uuid, part in compute.items() if part > 1)
        yield from (f"{uuid} lacks memory" for uuid, held in memory.items() if held > GPU_MIB * 2**20)


def _is_anchor(pod: Pod) -> bool:
    return pod.metadata.namespace == SYSTEM and pod.metadata.labels.get("tarragon.dev/gpu-anchor") == "true"


def _whole_gpus(pod: Pod) -> int:
    return sum(int(container.resources.limits.get(NVIDIA_GPU, 0)) for container in pod.spec.containers)


class GpuField(Scene):
    """Nodes with GPUs, of which some can be lost."""

    def __init__(self, plane: ControlPlane, http: HttpClient) -> None:
        super().__init__(plane, http)
        self.record = GpuRecord()
        self.pods.add_event_handler(self.record.note)
        self._kubelets: dict[str, asyncio.Task[None]] = {}

    async def begin(self, nodes: int) -> None:
        with suppress(AlreadyExists):
            await self.http.create(NAMESPACES, {"metadata": {"name": SYSTEM}})
        await super().begin(0)
        for number in range(nodes):
            await self.add(f"n{number:02}")

    async def add(self, name: str) -> None:
        settings = HollowSettings(names=[name], capacity=ROOM, labels=LABELS)
        hollow = HollowKubelet(self.http, settings, self.clock)
        self._kubelets[name] = asyncio.create_task(hollow.run())
        self._tasks.append(self._kubelets[name])
        await hollow.registered()

    async def lose(self, name: str) -> None:
        """The machine is gone, and its provider says so to the cluster."""
        self.record.lost.add(name)
        self._kubelets[name].cancel()
        await asyncio.gather(self._kubelets[name], return_exceptions=True)
        await self.http.delete(NODES, Key("", name), DeleteOptions())


@asynccontextmanager
async def a_field(plane: ControlPlane, nodes: int) -> AsyncIterator[GpuField]:
    async with connect(plane.kubeconfig) as http:
        scene = GpuField(plane, http)
        try:
            await scene.begin(nodes)
            yield scene
        finally:
            await scene.close()


def sharing_job(name: str, dice: random.Random) -> Json:
    """A parameter server and workers with a share each; every fifth job needs whole GPUs."""
    seconds, workers = dice.uniform(1, 4), dice.choice((1, 2, 3, 4, 6))
    if dice.random() < 0.2:
        return training(name, workers, gpus=1, seconds=seconds)
    part, memory = dice.choice(("0.1", "0.25", "0.3", "0.5", "0.7")), str(dice.choice((1, 2, 4)) * 2**30)
    return training(name, workers, seconds=seconds, share={"request": part, "limit": "1", "mem": memory})


@pytest.mark.parametrize(
    ("jobs", "nodes", "lost", "kills"),
    [pytest.param(200, 12, 3, 10, marks=pytest.mark.soak), pytest.param(30, 5, 1, 3)],
)
async def test_shares_are_held_by_anchors_although_nodes_are_lost_and_the_operator_is_killed(
    emptied_control_plane: ControlPlane, jobs: int, nodes: int, lost: int, kills: int
) -> None:
    dice = random.Random(20261126)
    names = [f"job-{number:03}" for number in range(jobs)]

    async with a_field(emptied_control_plane, nodes) as scene:
        operator = await scene.operator(None, *FLAGS)
        await scene.submit(names, lambda name: sharing_job(name, dice))
        events = ["kill"] * kills + ["lose"] * lost
        dice.shuffle(events)
        doomed = iter(range(lost))
        for number, event in enumerate(events):
            await until_succeeded(scene, names, jobs * (number + 1) // (len(events) + 2))
            if event == "lose":
                await scene.lose(f"n{next(doomed):02}")
            else:
                operator.send(signal.SIGKILL)
                await operator.ended()
                operator = await scene.operator(None, *FLAGS)
        await scene.until_states(names, "Succeeded", patience=200)
        await scene.until(lambda: not scene.record.anchors(), patience=60)

        assert scene.record.faults == []
        assert len(scene.record.anchors_seen) > jobs // 10
        assert scene.record.changes > jobs
