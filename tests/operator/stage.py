"""The operator at work on the embedded API, in process, with pods that do what a test says instead of a kubelet."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tarragon.client.errors import ApiError
from tarragon.client.port import DeleteOptions
from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.kube.core import CUSTOM_RESOURCE_DEFINITIONS, NODES, PODS
from tarragon.kube.meta import Key
from tarragon.kube.scheduling.node_gpu_sharing import GPU_SHARING_LABEL
from tarragon.operator.manager.operator import Operator, OperatorOptions
from tarragon.scheduling.api.rules import DEFAULT_POLICY
from tarragon.scheduling.policies import POLICIES
from tests.localcluster.controllers.world import EmbeddedCluster, RecordedEvent, a_world

Json = dict[str, Any]
TFJOBS = TENSORFLOW.resource


class Stage:
    """One namespace, `default`. Pods are named as in `job-worker-0`."""

    def __init__(self, world: EmbeddedCluster) -> None:
        self.world = world
        self._operators: list[asyncio.Task[None]] = []

    async def node(self, name: str, sharing: str = "kubelet", **amounts: str) -> None:
        """`sharing` is how its GPUs are shared, if it has any."""
        node = await self.world.create(NODES, name, namespace="", labels={GPU_SHARING_LABEL: sharing})
        allocatable = {"cpu": "8", "memory": "16Gi", "pods": "110", **amounts}
        status = {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]}
        await self.world.client.patch(NODES, node.metadata.key, {"status": status}, subresource="status")

    async def submit(self, name: str, **groups: Json) -> None:
        """`Worker={...}` as of `group`; everything else of spec under its own name."""
        await self.world.client.create(TFJOBS, job(name, **groups))

    def start_operator(self, policy: str = DEFAULT_POLICY) -> None:
        """One more of them, until the end of the test."""
        self._operators.append(self.operator(policy))

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Of an operator that the test has made, until the end of the test."""
        self._operators.append(asyncio.create_task(work))

    def keep(self, operator: asyncio.Task[None]) -> None:
        """Until the end of the test, unless it is killed before."""
        self._operators.append(operator)

    def operator(self, policy: str = DEFAULT_POLICY) -> asyncio.Task[None]:
        """One that the test may kill."""
        options = OperatorOptions(seed=1, policy=POLICIES[policy])
        return asyncio.create_task(Operator(self.world.client, self.world.clock, options).run())

    async def kill(self, operator: asyncio.Task[None]) -> None:
        operator.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await operator

    async def plays(self, pod: str, phase: str, exit_code: int | None = None, message: str = "") -> None:
        """What a kubelet would say of it."""
        state: Json = {"running": {}}
        if exit_code is not None:
            state = {"terminated": {"exitCode": exit_code, "message": message, "finishedAt": "2026-01-01T00:00:00Z"}}
        containers = [
            {"name": "tensorflow", "image": "i", "imageID": "", "ready": True, "restartCount": 0, "state": state}
        ]
        status = {"phase": phase, "containerStatuses": containers}
        await self.world.client.patch(PODS, Key("default", pod), {"status": status}, subresource="status")

    async def all_run(self, *pods: str) -> None:
        for pod in pods:
            await self.plays(pod, "Running")

    async def end_pods(self) -> None:
        """What a kubelet does with pods that are being deleted."""
        for pod in [pod for pod in self.pods().values() if pod["metadata"].get("deletionTimestamp")]:
            options = DeleteOptions(grace_period_seconds=0, uid=pod["metadata"]["uid"])
            with contextlib.suppress(ApiError):
                await self.world.client.delete(PODS, Key("default", pod["metadata"]["name"]), options)

    def pods(self) -> Mapping[str, Json]:
        return self._named("pods/default/")

    def services(self) -> Mapping[str, Json]:
        return {name: found for name, found in self._named("services/default/").items() if name != "kubernetes"}

    def job(self, name: str) -> Json:
        return self.world.objects[f"tfjobs/default/{name}"]

    def state(self, name: str) -> str:
        status = self.job(name).get("status") or {}
        return str((status.get("tarragon") or {}).get("state", ""))

    def admission(self, name: str) -> Json:
        found: Json = (self.job(name).get("status") or {}).get("tarragon", {}).get("admission", {})
        return found

    def events(self, reason: str) -> Sequence[str]:
        found = self._named("events/default/").values()
        return [event["message"] for event in found if event["reason"] == reason]

    async def until_state(self, name: str, state: str) -> None:
        await self.world.until(lambda: self.state(name) == state)

    async def until_pods(self, *names: str) -> None:
        await self.world.until(lambda: set(self.pods()) == set(names))

    def made(self) -> Sequence[str]:
        """The pods that were ever made, in order; one that was made twice stands there twice."""
        happened: list[RecordedEvent] = sorted(self.world.happened)
        return [one.what.rpartition("/")[2] for one in happened if one.type == "ADDED" and one.what.startswith("pods/")]

    async def close(self) -> None:
        for operator in self._operators:
            await self.kill(operator)

    def _named(self, prefix: str) -> Mapping[str, Json]:
        return {
            what.removeprefix(prefix): found for what, found in self.world.objects.items() if what.startswith(prefix)
        }


@asynccontextmanager
async def a_stage(folder: Path) -> AsyncIterator[Stage]:
    async with a_world(folder) as world:
        await world.client.create(CUSTOM_RESOURCE_DEFINITIONS, TENSORFLOW.crd())
        await world.follow(TFJOBS)
        stage = Stage(world)
        try:
            yield stage
        finally:
            await stage.close()


def group(replicas: int, *, policy: str = "Never", **resources: str) -> Json:
    container: Json = {"name": "tensorflow", "image": "i", "command": ["true"]}
    if resources:
        container["resources"] = {"limits": {name.replace("_", "/"): amount for name, amount in resources.items()}}
    return {"replicas": replicas, "restartPolicy": policy, "template": {"spec": {"containers": [container]}}}


def job(name: str, **spec: Any) -> Json:
    types = ("Chief", "Master", "PS", "Worker", "Evaluator")
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "tfReplicaSpecs": {kind: spec[kind] for kind in types if kind in spec},
            **{field: value for field, value in spec.items() if field not in types},
        },
    }
