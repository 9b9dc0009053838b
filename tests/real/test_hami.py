"""Shares of GPUs on nodes of a real control plane where HAMi shares them.

Pods of a real operator are bound by a real kube-scheduler, which asks an extender as HAMi's does. The extender is not
HAMi's: it stands in for it by the same rules. What it gives to pods is checked apart from it and from the operator.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml

from tarragon.base.resources import CPU, MEMORY, NVIDIA_GPU, PODS
from tarragon.client.errors import AlreadyExists
from tarragon.client.http.client import HttpClient
from tarragon.kube.core import NAMESPACES, NODES, Pod
from tarragon.kube.meta import Key
from tarragon.localcluster.kubelet.hollow.kubelet import HollowKubelet, HollowSettings
from tests.hami import CHOSEN, REGISTER, SCHEDULER, SPLIT, HamiScheduler, an_extender, registered, scheduler_config
from tests.hami import taken as taken_by
from tests.real.gpu_jobs import training, until_succeeded
from tests.real.scene import Scene, connect
from tools import controlplane
from tools.controlplane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(500)]

Json = dict[str, Any]
SYSTEM = "tarragon-system"
GPUS, MIB = 4, 16384
UUID, VGPU = "tarragon.dev/gpu-uuid", "tarragon.dev/vgpu"
ROOM = {CPU: 32_000, MEMORY: 256 * 2**30 * 1000, PODS: 110_000, NVIDIA_GPU: GPUS * SPLIT * 1000}
HALF = {"request": "0.5", "limit": "1"}
FLAGS = ("--lease-namespace", SYSTEM, "--policy", "backfill", "--patience", "20")


@dataclass
class GpuRecord:
    """Checks after each change of a pod what HAMi's annotations say about the GPUs of its node."""

    faults: list[str] = field(default_factory=list)
    bound: set[str] = field(default_factory=set)
    shared: set[tuple[str, ...]] = field(default_factory=set)
    """Pods that have had one GPU at the same time."""
    _pods: dict[Key, Pod] = field(default_factory=dict)

    def note(self, key: Key, _: Pod | None, new: Pod | None) -> None:
        before = self._pods.pop(key, None)
        if new is not None:
            self._pods[key] = new
        node = (new or before or Pod()).spec.node_name
        if node:
            self.faults += [f"{fault} (after {key})" for fault in self._faults(node)]

    def gpus_of(self, name: str) -> set[str]:
        return {uuid for uuid, _, _ in _taken(self._pods[Key("default", name)])}

    def _faults(self, node: str) -> Iterator[str]:
        holders: dict[str, dict[str, str]] = defaultdict(dict)
        memory: dict[str, int] = defaultdict(int)
        cores: dict[str, int] = defaultdict(int)
        for key, pod in self._pods.items():
            if pod.spec.node_name != node or pod.is_finished:
                continue
            annotations = pod.metadata.annotations
            for uuid, mib, percent in _taken(pod):
                self.bound.add(pod.metadata.uid)
                holders[uuid][key.name] = f"vGPU {annotations[VGPU]}" if VGPU in annotations else key.name
                memory[uuid] += mib
                cores[uuid] += percent
                if uuid not in annotations[UUID].split(","):
                    yield f"{key.name} has {uuid}, but not by the operator's choice"
        for uuid, names in holders.items():
            self.shared.add(tuple(sorted(names)))
            if len(set(names.values())) > 1:
                yield f"{uuid} has several uses: {names}"
        yield from (f"{uuid} has {percent} percent given away" for uuid, percent in cores.items() if percent > 100)
        yield from (f"{uuid} has {mib} MiB given away" for uuid, mib in memory.items() if mib > MIB)


def _taken(pod: Pod) -> Iterator[tuple[str, int, int]]:
    return taken_by({"metadata": {"annotations": pod.metadata.annotations}})


class HamiField(Scene):
    """Nodes with GPUs that HAMi shares, and a second kube-scheduler that asks for them."""

    def __init__(self, plane: ControlPlane, http: HttpClient) -> None:
        super().__init__(plane, http)
        self.record = GpuRecord()
        self.hami = HamiScheduler(http)
        self.pods.add_event_handler(self.record.note)

    async def begin(self, nodes: int) -> None:
        with suppress(AlreadyExists):
            await self.http.create(NAMESPACES, {"metadata": {"name": SYSTEM}})
        await super().begin(0)
        names = [f"n{number:02}" for number in range(nodes)]
        settings = HollowSettings(names=names, capacity=ROOM, labels={"tarragon.dev/gpu-sharing": "hami"})
        hollow = HollowKubelet(self.http, settings, self.clock)
        self._tasks.append(asyncio.create_task(hollow.run()))
        await hollow.registered()
        for name in names:
            # HAMi's annotation alone is enough.
            annotations = {REGISTER: registered(name, GPUS, MIB)}
            patch = {"metadata": {"labels": {"tarragon.dev/gpu-sharing": None}, "annotations": annotations}}
            await self.http.patch(NODES, Key("", name), patch)

    @asynccontextmanager
    async def kube_scheduler(self) -> AsyncIterator[None]:
        """As HAMi's chart configures it, beside the usual one."""
        async with an_extender(self.hami) as address:
            kubeconfig = self.plane.folder / f"{controlplane.SCHEDULER}.kubeconfig"
            path = self.plane.folder / "hami-scheduler.yaml"
            path.write_text(yaml.safe_dump(scheduler_config(str(kubeconfig), address, self.plane.minor)))
            program = self.plane.release.binaries() / controlplane.SCHEDULER
            with (self.plane.folder / "hami-scheduler.log").open("wb") as log:
                flags = [f"--config={path}", "--secure-port=0"]
                process = await asyncio.create_subprocess_exec(program, *flags, stdout=log, stderr=log)
            try:
                yield
            finally:
                process.kill()
                await process.wait()


@asynccontextmanager
async def a_field(plane: ControlPlane, nodes: int) -> AsyncIterator[HamiField]:
    async with connect(plane.kubeconfig) as http:
        scene = HamiField(plane, http)
        try:
            await scene.begin(nodes)
            yield scene
        finally:
            await scene.close()


async def test_two_halves_and_a_whole_are_bound_to_the_gpus_that_the_operator_names(
    emptied_control_plane: ControlPlane,
) -> None:
    async with a_field(emptied_control_plane, 1) as scene, scene.kube_scheduler():
        await scene.operator(None, *FLAGS)
        await scene.submit(["half"], lambda name: training(name, 2, share=HALF))
        await scene.submit(["whole"], lambda name: training(name, 1, gpus=1))
        await scene.submit(["two"], lambda name: training(name, 1, gpus=2))
        await scene.until_states(["half", "whole", "two"], "Running")

        first, second = scene.record.gpus_of("half-worker-0"), scene.record.gpus_of("half-worker-1")
        whole, two = scene.record.gpus_of("whole-worker-0"), scene.record.gpus_of("two-worker-0")
        assert first == second
        assert [len(gpus) for gpus in (first, whole, two)] == [1, 1, 2]
        assert len(first | whole | two) == GPUS
        assert scene.record.faults == []
        assert scene.hami.refusals == []
        assert sorted(scene.hami.bound) == ["half-worker-0", "half-worker-1", "two-worker-0", "whole-worker-0"]


async def test_pods_are_created_as_hami_wants_them_and_the_job_says_when_no_scheduler_takes_them(
    emptied_control_plane: ControlPlane,
) -> None:
    async with a_field(emptied_control_plane, 1) as scene:
        await scene.operator(None, *FLAGS)
        await scene.submit(["half"], lambda name: training(name, 1, share=HALF))
        worker, server = Key("default", "half-worker-0"), Key("default", "half-ps-0")
        await scene.until(lambda: {worker, server} <= scene.pods.objects.keys())

        pod = scene.pods.objects[worker]
        assert pod.spec.scheduler_name == SCHEDULER
        assert pod.spec.node_name == ""
        limits = {NVIDIA_GPU: "1", "nvidia.com/gpucores": "50", "nvidia.com/gpumem": "8192"}
        assert pod.spec.containers[0].resources.limits == limits
        assert pod.metadata.annotations["nvidia.com/use-gpuuuid"] == pod.metadata.annotations[UUID]
        assert CHOSEN not in pod.metadata.annotations
        assert scene.pods.objects[server].spec.node_name == "n00"


def random_job(name: str, dice: random.Random) -> Json:
    workers, seconds = dice.choice((1, 2, 3, 4, 6)), dice.uniform(1, 4)
    if dice.random() < 0.3:
        return training(name, min(workers, 3), gpus=dice.choice((1, 1, 2)), seconds=seconds)
    share = {"request": dice.choice(("0.1", "0.25", "0.3", "0.335", "0.5", "0.7")), "limit": "1"}
    memory = {} if dice.random() < 0.5 else {"mem": str(dice.choice((1, 2, 4)) * 2**30)}
    return training(name, workers, seconds=seconds, share={**share, **memory})


@pytest.mark.parametrize(
    ("jobs", "nodes", "kills"), [pytest.param(200, 8, 8, marks=pytest.mark.soak), pytest.param(30, 3, 3)]
)
async def test_no_gpu_is_given_away_twice_although_the_operator_is_killed(
    emptied_control_plane: ControlPlane, jobs: int, nodes: int, kills: int
) -> None:
    dice = random.Random(20261126)
    names = [f"job-{number:03}" for number in range(jobs)]

    async with a_field(emptied_control_plane, nodes) as scene, scene.kube_scheduler():
        operator = await scene.operator(None, *FLAGS)
        await scene.submit(names, lambda name: random_job(name, dice))
        for number in range(kills):
            await until_succeeded(scene, names, jobs * (number + 1) // (kills + 2))
            operator.send(signal.SIGKILL)
            await operator.ended()
            operator = await scene.operator(None, *FLAGS)
        await scene.until_states(names, "Succeeded", patience=200)

        assert scene.record.faults == []
        assert len(scene.record.bound) > jobs
        assert any(len(names) > 1 for names in scene.record.shared)
        assert scene.hami.refusals == []
