"""Jobs of v1alpha1 on a real API server, which stores them as v1 and knows nothing of lists of replicas."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml

from tarragon.frameworks.tensorflow.crd import VERSIONS
from tests.deploy.stage import Kubectl
from tests.real.scene import Scene, a_scene
from tools.controlplane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.kubectl, pytest.mark.timeout(300)]

Json = dict[str, Any]

V1ALPHA1 = "tfjobs.v1alpha1.kubeflow.org"


def manifest(name: str = "old", *, seconds: float | None = None, workers: int = 2) -> Json:
    """A master that ends after so many seconds, workers, and a parameter server that is left to the operator."""
    quick = {"annotations": {"tarragon.dev/hollow-seconds": str(seconds)}} if seconds is not None else {}
    pod = {"restartPolicy": "OnFailure", "containers": [{"name": "tensorflow", "image": "i"}]}
    return {
        "apiVersion": "kubeflow.org/v1alpha1",
        "kind": "TFJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicaSpecs": [
                {"tfReplicaType": "MASTER", "template": {"metadata": quick, "spec": pod}},
                {"tfReplicaType": "WORKER", "replicas": workers, "template": {"spec": pod}},
                {"tfReplicaType": "PS"},
            ]
        },
    }


@pytest.fixture
async def scene(emptied_control_plane: ControlPlane) -> AsyncIterator[Scene]:
    async with a_scene(emptied_control_plane) as scene:
        yield scene


@pytest.fixture
def kubectl(scene: Scene) -> Kubectl:
    return Kubectl(scene.plane.kubeconfig)


async def shown(kubectl: Kubectl, kind: str = V1ALPHA1, name: str = "old") -> Json:
    found: Json = json.loads(await kubectl("get", kind, name, "-o", "json"))
    return found


@pytest.mark.both_releases
async def test_it_runs_to_its_end_and_is_the_same_through_every_version(scene: Scene, kubectl: Kubectl) -> None:
    await scene.operator(None, "--no-leader-elect")
    await kubectl("create", "-f", "-", stdin=yaml.safe_dump(manifest(seconds=1)))
    await scene.until_states(["old"], "Succeeded")
    await kubectl("wait", V1ALPHA1, "old", "--for=jsonpath={.status.phase}=Done", "--timeout=60s")

    seen = [await shown(kubectl, f"tfjobs.{version}.kubeflow.org") for version in VERSIONS]
    assert [each.pop("apiVersion") for each in seen] == [f"kubeflow.org/{version}" for version in VERSIONS]
    assert all(each["spec"] == seen[0]["spec"] and each["status"] == seen[0]["status"] for each in seen)
    assert len(seen[0]["spec"]["RuntimeId"]) == 4
    assert seen[0]["status"]["replicaStatuses"][0] == {
        "tf_replica_type": "MASTER",
        "state": "Succeeded",
        "ReplicasStates": {"Succeeded": 1},
    }
    assert set(scene.made().values()) == {1}


async def test_a_job_made_through_v1_is_known_by_its_list(scene: Scene, kubectl: Kubectl) -> None:
    """As it comes back from a backup, or from a client that knows one version only."""
    await kubectl("create", "-f", "-", stdin=yaml.safe_dump({**manifest(), "apiVersion": "kubeflow.org/v1"}))
    await scene.operator(None, "--no-leader-elect")
    await scene.until_states(["old"], "Running")

    assert (await shown(kubectl))["status"]["phase"] == "Running"


async def test_a_job_made_again_from_what_kubectl_printed_keeps_its_runtime_id_and_shares_no_pod(
    scene: Scene, kubectl: Kubectl
) -> None:
    await scene.operator(None, "--no-leader-elect")
    await kubectl("create", "-f", "-", stdin=yaml.safe_dump(manifest()))
    await scene.until_states(["old"], "Running")
    await scene.until(lambda: len(scene.uids()) == 4)
    first, before = await shown(kubectl), set(scene.uids())
    await kubectl("delete", V1ALPHA1, "old", "--wait=true")
    await kubectl("delete", "pods", "--all", "--wait=true")

    await kubectl("create", "-f", "-", stdin=yaml.safe_dump(first))
    await scene.until(lambda: len(scene.uids()) == 4 and not before & set(scene.uids()))
    await scene.until_states(["old"], "Running")
    assert (await shown(kubectl))["spec"] == first["spec"]


async def test_a_job_that_is_applied_again_goes_on(scene: Scene, kubectl: Kubectl) -> None:
    """With it goes what the operator has filled in, and it means the same."""
    await scene.operator(None, "--no-leader-elect")
    await kubectl("apply", "-f", "-", stdin=yaml.safe_dump(manifest()))
    await scene.until_states(["old"], "Running")
    await scene.until(lambda: len(scene.uids()) == 4)
    before = scene.uids()

    await kubectl("apply", "-f", "-", stdin=yaml.safe_dump(manifest(workers=1)))
    kept = {pod: uid for pod, uid in before.items() if not re.search(r"-worker-\w+-1-", pod)}
    await scene.until(lambda: scene.uids() == kept)
    assert (await shown(kubectl))["status"]["state"] == "Running"


async def test_kubectl_scales_its_workers(scene: Scene, kubectl: Kubectl) -> None:
    await scene.operator(None, "--no-leader-elect")
    await kubectl("create", "-f", "-", stdin=yaml.safe_dump(manifest()))
    await scene.until_states(["old"], "Running")
    await scene.until(lambda: len(scene.uids()) == 4)

    await kubectl("scale", V1ALPHA1, "old", "--replicas=1")
    await scene.until(lambda: len(scene.uids()) == 3)
    scale = json.loads(await kubectl("get", "--raw", "/apis/kubeflow.org/v1alpha1/namespaces/default/tfjobs/old/scale"))
    assert scale["spec"]["replicas"] == 1
    selected = await kubectl("get", "pods", "-l", scale["status"]["selector"], "-o", "name")
    (worker,) = selected.split()
    assert worker.startswith("pod/old-worker-")


async def test_one_that_makes_no_sense_fails_with_the_reason_in_its_status(scene: Scene, kubectl: Kubectl) -> None:
    wrong = manifest()
    wrong["spec"]["replicaSpecs"][1]["tfReplicaType"] = "Worker"
    await scene.operator(None, "--no-leader-elect")
    await kubectl("create", "-f", "-", stdin=yaml.safe_dump(wrong))
    await scene.until_states(["old"], "Failed")

    status = (await shown(kubectl))["status"]
    assert (status["phase"], status["state"]) == ("Failed", "Failed")
    assert status["reason"].endswith('not the text "Worker"; did you mean WORKER?')
