"""MPIJobs on the stage of the operator: their definition is installed, and their pods have one container each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tarragon.frameworks.mpi.framework import MPI
from tarragon.job.model import GENERATION_ANNOTATION
from tarragon.kube.core import CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS, PODS, SECRETS
from tarragon.kube.meta import Key
from tests.frameworks.mpi_jobs import V2BETA1, Json, mpijob
from tests.operator.stage import Stage

LAUNCHER = "pi-launcher"
MPIJOBS = MPI.resource


class MpiStage:
    """A job `pi` in the namespace `default`."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.world = stage.world

    async def prepare(self) -> None:
        await self.install()
        self.stage.start_operator()

    async def install(self) -> None:
        await self.world.client.create(CUSTOM_RESOURCE_DEFINITIONS, MPI.crd())
        for kind in (MPIJOBS, CONFIG_MAPS, SECRETS):
            await self.world.follow(kind)
        await self.stage.node("n")

    async def submit(self, manifest: Json) -> None:
        # The client of the tests has the operator's name, so that its writes do not tell the generation.
        annotations = {GENERATION_ANNOTATION: manifest["apiVersion"]}
        metadata = {**manifest["metadata"], "namespace": "default", "annotations": annotations}
        await self.world.client.create(MPIJOBS, {**manifest, "apiVersion": V2BETA1, "metadata": metadata})

    async def change(self, **spec: Any) -> None:
        await self.world.client.patch(MPIJOBS, Key("default", "pi"), {"spec": spec})

    async def runs(self, *pods: str, ready: bool = True) -> None:
        for pod in pods:
            await self._plays(pod, "Running", {"running": {"startedAt": self._now()}}, is_ready=ready)

    async def waits_for_volumes(self, pod: str) -> None:
        message = 'MountVolume.SetUp failed for volume "ssh-auth": secret "pi-ssh" not found'
        waiting = {"waiting": {"reason": "ContainerCreating", "message": message}}
        await self._plays(pod, "Pending", waiting, is_ready=False)

    async def ends(self, pod: str, code: int) -> None:
        phase = "Failed" if code else "Succeeded"
        ended = {
            "terminated": {"exitCode": code, "finishedAt": self._now(), "reason": "Error" if code else "Completed"}
        }
        await self._plays(pod, phase, ended, is_ready=False)

    async def _plays(self, pod: str, phase: str, state: Json, *, is_ready: bool) -> None:
        name = self.stage.pods()[pod]["spec"]["containers"][0]["name"]
        container = {"name": name, "image": "i", "imageID": "", "ready": is_ready, "restartCount": 0, "state": state}
        conditions = [{"type": "Ready", "status": "True" if is_ready else "False"}]
        status = {"phase": phase, "conditions": conditions, "containerStatuses": [container]}
        await self.world.client.patch(PODS, Key("default", pod), {"status": status}, subresource="status")

    def _now(self) -> str:
        return self.world.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")

    @property
    def job(self) -> Json:
        return self.world.objects["mpijobs/default/pi"]

    @property
    def status(self) -> Json:
        found: Json = self.job.get("status", {})
        return found

    @property
    def state(self) -> str:
        return str(self.status.get("tarragon", {}).get("state", ""))

    @property
    def config(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self.world.objects.get("configmaps/default/pi-config", {}).get("data", {})
        return found

    @property
    def config_version(self) -> str:
        return str(self.world.objects["configmaps/default/pi-config"]["metadata"]["resourceVersion"])

    def named(self, kind: str) -> set[str]:
        prefix = f"{kind}/default/"
        return {what.removeprefix(prefix) for what in self.world.objects if what.startswith(prefix)}

    async def until_state(self, state: str) -> None:
        await self.world.until(lambda: self.state == state)


def job(api_version: str = V2BETA1, *, workers: int | None = 2, **spec: Any) -> Json:
    return mpijob(api_version, workers=workers, **spec)
