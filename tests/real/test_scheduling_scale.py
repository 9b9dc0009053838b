"""Gangs on the nodes of a real control plane, of which some are lost: whole or not at all, and all of them done."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tarragon.base.resources import CPU, MEMORY, NVIDIA_GPU, PODS
from tarragon.client.http.client import HttpClient
from tarragon.client.informer.informer import Informer
from tarragon.client.port import DeleteOptions
from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.kube.core import NODES, Node
from tarragon.kube.meta import Key
from tarragon.localcluster.kubelet.hollow.kubelet import HollowKubelet, HollowSettings
from tests.real.scene import Scene, connect
from tests.recording.gangs import GangRecord, record_caches, report
from tools.controlplane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(400)]

Json = dict[str, Any]
IMPATIENT = ("--policy", "dragon", "--aged", "2", "--idle", "3", "--cool-down", "3", "--patience", "20")
ROOM = {CPU: 8_000, MEMORY: 64 * 2**30 * 1000, PODS: 110_000, NVIDIA_GPU: 4_000}


class Field(Scene):
    """With a record of everything, and nodes that can be lost one by one."""

    def __init__(self, plane: ControlPlane, http: HttpClient, doomed: int) -> None:
        super().__init__(plane, http)
        self._doomed = doomed
        self.record = GangRecord()
        self._nodes: Informer[Node] = Informer(self.http, NODES, self.clock, jitter=random.Random(1))
        self._kubelets: dict[str, asyncio.Task[None]] = {}
        record_caches(self.record, self.clock, jobs={TENSORFLOW: self.jobs}, pods=self.pods, nodes=self._nodes)

    async def begin(self, nodes: int) -> None:
        self._tasks.append(asyncio.create_task(self._nodes.run()))
        await super().begin(0)
        names = [f"n{number:02}" for number in range(nodes)]
        lasting, doomed = names[self._doomed :], names[: self._doomed]
        kubelets = [self._kubelet(lasting), *(self._kubelet([name]) for name in doomed)]
        await asyncio.gather(*(kubelet.registered() for kubelet in kubelets))

    def _kubelet(self, names: list[str]) -> HollowKubelet:
        hollow = HollowKubelet(self.http, HollowSettings(names=names, capacity=ROOM), self.clock)
        task = asyncio.create_task(hollow.run())
        self._tasks.append(task)
        self._kubelets[names[0]] = task
        return hollow

    async def lose(self, name: str) -> None:
        """The machine is gone, and its provider says so to the cluster."""
        self._kubelets[name].cancel()
        await asyncio.gather(self._kubelets[name], return_exceptions=True)
        await self.http.delete(NODES, Key("", name), DeleteOptions())


@asynccontextmanager
async def a_field(plane: ControlPlane, nodes: int, doomed: int) -> AsyncIterator[Field]:
    async with connect(plane.kubeconfig) as http:
        field = Field(plane, http, doomed)
        try:
            await field.begin(nodes)
            yield field
        finally:
            await field.close()


def a_job(name: str, dice: random.Random) -> Json:
    """A third is rigid; the others may run with a quarter of what they wish, and grow to half as much again."""
    workers = dice.choice((1, 2, 2, 4, 4, 6, 8, 12))
    seconds = dice.uniform(2, 6)
    spec: Json = {"tfReplicaSpecs": {"PS": group(1, None, cpu="500m"), "Worker": group(workers, seconds, gpus=1)}}
    if dice.random() > 1 / 3:
        spec |= {"min-instances": max(1, workers // 4), "max-instances": workers + workers // 2}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def group(replicas: int, seconds: float | None, *, gpus: int = 0, cpu: str = "1") -> Json:
    """Those that are asked to end take half a second for it."""
    notes = {"tarragon.dev/hollow-stop-seconds": "0.5"}
    if seconds is not None:
        notes["tarragon.dev/hollow-seconds"] = f"{seconds:.1f}"
    needs: Json = {"requests": {"cpu": cpu, "memory": "1Gi"}}
    if gpus:
        needs["limits"] = {"nvidia.com/gpu": gpus}
    container = {"name": "tensorflow", "image": "i", "resources": needs}
    template = {"metadata": {"annotations": notes}, "spec": {"containers": [container]}}
    return {"replicas": replicas, "restartPolicy": "OnFailure", "template": template}


@pytest.mark.parametrize(
    ("jobs", "nodes", "lost"), [pytest.param(200, 50, 5, marks=pytest.mark.soak), pytest.param(40, 12, 2)]
)
async def test_gangs_start_whole_and_end_well_although_nodes_are_lost(
    emptied_control_plane: ControlPlane, capsys: pytest.CaptureFixture[str], jobs: int, nodes: int, lost: int
) -> None:
    dice = random.Random(20261121)
    names = [f"job-{number:03}" for number in range(jobs)]
    async with a_field(emptied_control_plane, nodes, lost) as field:
        await field.operator(None, *IMPATIENT)
        await field.submit(names, lambda name: a_job(name, dice))
        for number in range(lost):
            done = jobs * (number + 1) // (lost + 2)
            await field.until(lambda done=done: sum(field.state(name) == "Succeeded" for name in names) >= done)  # type: ignore[misc]
            await field.lose(f"n{number:02}")
        await field.until_states(names, "Succeeded", patience=200)
        field.record.end(field.clock.monotonic())

    with capsys.disabled():
        print("", *report(field.record), sep="\n")  # noqa: T201 - the figures are what somebody runs this for
    assert field.record.partial.total == 0
    assert field.record.oversold == []
    assert field.record.bound_beyond == []
    assert field.record.leaving.longest < 60
    assert any(len(sizes) > 1 for sizes in field.record.sizes.values())
