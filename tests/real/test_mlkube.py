"""The TfJob of 2017 on a real API server: a kind of its own, whose plural another kind has as well."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml

from tarragon.client.port import Selector
from tarragon.frameworks.tensorflow.framework import MLKUBE
from tarragon.job.status_encoding import decode_status
from tarragon.kube.core import PODS, SERVICES
from tarragon.kube.meta import Key
from tests.deploy.stage import Kubectl
from tests.real.scene import PATIENCE, Scene, a_scene, tfjob
from tools.controlplane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.kubectl, pytest.mark.timeout(300)]

Json = dict[str, Any]
TFJOBS_OF_2017 = MLKUBE.resource.with_model(dict)
QUICK = {"metadata": {"annotations": {"tarragon.dev/hollow-seconds": "1"}}}


def replica(kind: str, count: int = 1, **template: Any) -> Json:
    spec = {"containers": [{"name": "tensorflow", "image": "i"}], "restartPolicy": "OnFailure"}
    return {"replicas": count, "tfReplicaType": kind, "template": {**template, "spec": spec}}


def of_2017(name: str, master: Json = QUICK, **spec: Any) -> Json:
    items = [replica("MASTER", **master), replica("WORKER", 2), {"tfReplicaType": "PS"}]
    return {
        "apiVersion": "mlkube.io/v1beta1",
        "kind": "TfJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"RuntimeId": "ab12", "replicaSpecs": items, **spec},
    }


@pytest.fixture
async def scene(emptied_control_plane: ControlPlane) -> AsyncIterator[Scene]:
    async with a_scene(emptied_control_plane) as scene:
        yield scene


@pytest.fixture
def kubectl(scene: Scene) -> Kubectl:
    return Kubectl(scene.plane.kubeconfig)


async def until(scene: Scene, name: str, **fields: str) -> Json:
    """The job, once its status has these."""
    found: Json = {}
    try:
        async with asyncio.timeout(PATIENCE):
            while not fields.items() <= found.get("status", {}).items():
                await scene.clock.sleep(0.1)
                found = await scene.http.get(TFJOBS_OF_2017, Key("default", name))
    except TimeoutError:
        raise AssertionError(f"{found}\n{scene.told()}") from None
    return found


@pytest.mark.both_releases
async def test_it_runs_to_its_end_in_the_names_labels_and_words_of_its_time(scene: Scene, kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", stdin=yaml.safe_dump(of_2017("example-job")))
    await scene.operator(None, "--no-leader-elect")
    found = await until(scene, "example-job", phase="Done")

    status = found["status"]
    assert (status["state"], status["reason"], status["controlPaused"]) == ("Succeeded", "", False)
    await kubectl("wait", "tfjobs.mlkube.io/example-job", "--for=condition=Succeeded", "--timeout=30s")
    assert status["replicaStatuses"][0] == {
        "tf_replica_type": "MASTER",
        "state": "Succeeded",
        "ReplicasStates": {"Succeeded": 1},
    }
    pods = json.loads(await kubectl("get", "pods", "-l", "mlkube.io,runtime_id=ab12", "-o", "json"))["items"]
    assert {pod["metadata"]["name"] for pod in pods} == {
        "master-ab12-0",
        "ps-ab12-0",
        "worker-ab12-0",
        "worker-ab12-1",
    }
    assert {pod["metadata"]["labels"]["job_type"] for pod in pods} == {"MASTER", "PS", "WORKER"}
    assert set(scene.made().values()) == {1}
    assert decode_status(status).phase.value == "Succeeded"


async def test_services_have_an_address_and_the_port_of_their_time(scene: Scene, kubectl: Kubectl) -> None:
    await scene.operator(None, "--no-leader-elect")
    await kubectl("create", "-f", "-", stdin=yaml.safe_dump(of_2017("example-job", master={})))
    await until(scene, "example-job", phase="Running")

    services = (
        await scene.http.list(SERVICES.with_model(dict), Selector(namespace="default", label_selector="mlkube.io"))
    ).items
    assert {service["metadata"]["name"] for service in services} == {
        "master-ab12-0",
        "ps-ab12-0",
        "worker-ab12-0",
        "worker-ab12-1",
    }
    for service in services:
        assert service["spec"]["clusterIP"] != "None"
        assert [(port["name"], port["port"]) for port in service["spec"]["ports"]] == [("tf-port", 2222)]
    server = (
        await scene.http.list(PODS.with_model(dict), Selector(namespace="default", label_selector="job_type=PS"))
    ).items[0]
    assert (
        "master|master-ab12-0:2222,ps|ps-ab12-0:2222,worker|worker-ab12-0:2222;worker-ab12-1:2222"
        in server["spec"]["containers"][0]["command"]
    )


async def test_kubectl_scales_and_deletes_it(scene: Scene, kubectl: Kubectl) -> None:
    await scene.operator(None, "--no-leader-elect")
    await kubectl("create", "-f", "-", stdin=yaml.safe_dump(of_2017("example-job", master={})))
    await until(scene, "example-job", phase="Running")
    await scene.until(lambda: len(scene.uids()) == 4)

    await kubectl("scale", "tfjobs.mlkube.io/example-job", "--replicas=1")
    await scene.until(lambda: set(scene.uids()) == {"master-ab12-0", "ps-ab12-0", "worker-ab12-0"})

    await kubectl("delete", "tfjobs.mlkube.io", "example-job", "--wait=false")
    await scene.until(lambda: not scene.uids())


async def test_who_names_no_group_means_the_kind_of_kubeflow(scene: Scene, kubectl: Kubectl) -> None:
    await scene.operator(None, "--no-leader-elect")
    await kubectl("create", "-f", "-", stdin=yaml.safe_dump(of_2017("one-name")))
    await kubectl("create", "-f", "-", stdin=yaml.safe_dump(tfjob("one-name", seconds=1)))
    await until(scene, "one-name", phase="Done")
    await scene.until_states(["one-name"], "Succeeded")

    assert (await kubectl("get", "tfjobs", "-o", "name")).split() == ["tfjob.kubeflow.org/one-name"]
    assert (await kubectl("get", "tfjob", "one-name", "-o", "jsonpath={.kind}")) == "TFJob"
    assert (await kubectl("get", "tfjobs.mlkube.io", "-o", "name")).split() == ["tfjob.mlkube.io/one-name"]
    head, row = (await kubectl("get", "tfjobs.mlkube.io")).splitlines()
    assert head.split() == ["NAME", "STATE", "READY", "RESTARTS", "AGE", "PROGRESS", "REASON"]
    assert row.split()[:2] == ["one-name", "Succeeded"]


async def test_its_tensorboard_outlives_it_and_goes_with_it(scene: Scene, kubectl: Kubectl) -> None:
    await scene.operator(None, "--no-leader-elect")
    board = {"logDir": "/logs", "serviceType": "NodePort"}
    await kubectl("create", "-f", "-", stdin=yaml.safe_dump(of_2017("example-job", tensorboard=board)))
    await until(scene, "example-job", phase="Done")
    await scene.until(lambda: "tensorboard-ab12" in scene.uids())

    pod = json.loads(await kubectl("get", "pod", "tensorboard-ab12", "-o", "json"))
    assert pod["spec"]["containers"][0]["image"] == "tensorflow/tensorflow:1.3.0"
    assert {"mlkube.io": "", "runtime_id": "ab12", "app": "tensorboard"}.items() <= pod["metadata"]["labels"].items()
    service = json.loads(await kubectl("get", "service", "tensorboard-ab12", "-o", "json"))["spec"]
    assert service["type"] == "NodePort"
    (port,) = service["ports"]
    assert (port["name"], port["port"], port["targetPort"]) == ("tb-port", 80, 6006)

    await kubectl("delete", "tfjobs.mlkube.io", "example-job", "--wait=false")
    await scene.until(lambda: not scene.uids())
