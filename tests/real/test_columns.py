"""`kubectl get tfjobs` shows the same of a job of every generation."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import yaml

from tests.deploy.stage import Kubectl
from tests.real.scene import PATIENCE, a_scene
from tools.controlplane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.both_releases, pytest.mark.kubectl, pytest.mark.timeout(180)]

Json = dict[str, Any]

HEAD = ["NAME", "STATE", "READY", "RESTARTS", "AGE", "PROGRESS", "REASON"]
SPEC: Json = {"containers": [{"name": "tensorflow", "image": "i"}]}
LISTED: Json = {
    "replicaSpecs": [
        {"tfReplicaType": kind, "replicas": 1, "template": {"spec": {**SPEC, "restartPolicy": "OnFailure"}}}
        for kind in ("MASTER", "WORKER")
    ]
}
MAPPED: Json = {"tfReplicaSpecs": {kind: {"replicas": 1, "template": {"spec": SPEC}} for kind in ("Chief", "Worker")}}
OF_KUBEFLOW: dict[str, tuple[str, Json]] = {
    "alpha1": ("kubeflow.org/v1alpha1", LISTED),
    "alpha2": ("kubeflow.org/v1alpha2", MAPPED),
    "beta1": ("kubeflow.org/v1beta1", MAPPED),
    "beta2": ("kubeflow.org/v1beta2", MAPPED),
    "dragon": ("kubeflow.org/v1", {**MAPPED, "max-instances": 1, "min-instances": 1}),
    "flat": ("kubeflow.org/v1", {**MAPPED, "cleanPodPolicy": "None"}),
    "nested": ("kubeflow.org/v1", {**MAPPED, "runPolicy": {"cleanPodPolicy": "None"}}),
}


def job(name: str, version: str, spec: Json, kind: str = "TFJob") -> Json:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


async def test_the_columns_of_every_generation(emptied_control_plane: ControlPlane) -> None:
    async with a_scene(emptied_control_plane) as scene:
        kubectl = Kubectl(scene.plane.kubeconfig)
        await kubectl.established("tfjobs.mlkube.io")
        await scene.operator(None, "--no-leader-elect")
        jobs = [job(name, *of) for name, of in OF_KUBEFLOW.items()]
        jobs.append(job("mlkube", "mlkube.io/v1beta1", LISTED, "TfJob"))
        never = {**SPEC, "nodeSelector": {"no": "such-node"}}
        jobs.append(
            job("waits", "kubeflow.org/v1alpha2", {"tfReplicaSpecs": {"Worker": {"template": {"spec": never}}}})
        )
        await kubectl("create", "-f", "-", stdin=yaml.safe_dump_all(jobs))

        async def rows(plural: str) -> dict[str, list[str]]:
            head, *found = (await kubectl("get", plural)).splitlines()
            assert head.split() == HEAD
            return {row.split()[0]: row.split()[1:] for row in found}

        async with asyncio.timeout(PATIENCE):
            while True:
                kubeflows, mlkubes = await rows("tfjobs.kubeflow.org"), await rows("tfjobs.mlkube.io")
                going = {name for name, row in {**kubeflows, **mlkubes}.items() if row[:3] == ["Running", "2/2", "0"]}
                waiting = kubeflows["waits"][0]
                if going == {*OF_KUBEFLOW, "mlkube"} and waiting == "Waiting":
                    break
                await scene.clock.sleep(0.2)
        assert [row for name, row in kubeflows.items() if name != "waits" and len(row) != len(HEAD) - 3] == []
        assert kubeflows["waits"][:3] + kubeflows["waits"][4:] == ["Waiting", "0/1", "0", "NeverFits"]
