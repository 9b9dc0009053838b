"""A real API server takes SharePod's definition, and kubectl shows what is in it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.deploy.stage import Kubectl, unvalidated
from tests.real.scene import PATIENCE, a_scene
from tools.controlplane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.kubectl, pytest.mark.timeout(180)]

Json = dict[str, Any]

OF_KUBESHARE: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "sharepods.kubeshare.nthu"},
    "spec": {
        "group": "kubeshare.nthu",
        "scope": "Namespaced",
        "names": {"plural": "sharepods", "singular": "sharepod", "kind": "SharePod", "shortNames": ["shp"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
"""KubeShare's definition, as a server that no longer has apiextensions.k8s.io/v1beta1 keeps it."""


def sharepod(name: str, annotations: Json, **spec: Any) -> str:
    body = {
        "apiVersion": "kubeshare.nthu/v1",
        "kind": "SharePod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}, "annotations": annotations},
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }
    return json.dumps(body)


async def test_kubectl_shows_a_sharepod_and_its_status_is_that_of_its_pod(emptied_control_plane: ControlPlane) -> None:
    async with a_scene(emptied_control_plane) as scene:
        kubectl = Kubectl(scene.plane.kubeconfig)
        await kubectl.established("sharepods.kubeshare.nthu")
        await scene.operator(None, "--no-leader-elect")
        await kubectl("create", "-f", "-", stdin=sharepod("a", {"team": "x"}, nodeName="hollow-2"))

        async def shown() -> Json:
            found: Json = json.loads(await kubectl("get", "shp", "a", "-o", "json")).get("status", {})
            return found

        async with asyncio.timeout(PATIENCE):
            while (await shown()).get("PodStatus", {}).get("phase") != "Running":
                await scene.clock.sleep(0.2)
            while (await kubectl("get", "shp")).split()[6:9] != ["a", "Running", "0"]:
                await scene.clock.sleep(0.2)
        head = (await kubectl("get", "shp")).splitlines()[0]
        pod = json.loads(await kubectl("get", "pod", "a", "-o", "json"))
        status = await shown()
        assert head.split() == ["NAME", "STATUS", "GPU", "RESTARTS", "AGE", "REASON"]
        assert pod["spec"]["nodeName"] == "hollow-2"
        assert status["PodObjectMeta"]["uid"] == pod["metadata"]["uid"]
        assert status["PodObjectMeta"]["labels"]["app"] == "a"
        assert (status["BoundDeviceID"], status["PodManagerPort"]) == ("", 0)

        await kubectl("delete", "shp", "a")
        await scene.until(lambda: "a" not in scene.uids())


async def test_the_column_of_a_share_reads_its_annotation(emptied_control_plane: ControlPlane) -> None:
    kubectl = Kubectl(emptied_control_plane.kubeconfig)
    async with a_scene(emptied_control_plane):
        await kubectl.established("sharepods.kubeshare.nthu")
        await kubectl("create", "-f", "-", stdin=sharepod("b", {"kubeshare/gpu_request": "0.5"}))

        assert (await kubectl("get", "shp")).splitlines()[1].split()[:2] == ["b", "0.5"]


async def test_objects_of_kubeshare_are_taken_over_under_our_definition(own_control_plane: ControlPlane) -> None:
    """KubeShare writes null for a pod that does not exist yet, and its status without a subresource."""
    kubectl = Kubectl(own_control_plane.kubeconfig)
    async with a_scene(own_control_plane) as scene:
        await kubectl("create", "-f", "-", stdin=json.dumps(OF_KUBESHARE))
        await kubectl.established("sharepods.kubeshare.nthu")
        body = {**json.loads(sharepod("old", {})), "status": {"PodStatus": None, "PodManagerPort": 50051}}
        await kubectl("create", "-f", "-", stdin=json.dumps(body))
        ours = "deploy/crd-sharepods.kubeshare.nthu.yaml"
        await kubectl("apply", "-f", ours, *unvalidated(own_control_plane))

        async def shown() -> Json:
            found: Json = json.loads(await kubectl("get", "shp", "old", "-o", "json")).get("status", {})
            return found

        await kubectl("annotate", "shp", "old", "tarragon.dev/adopt=true")
        assert await shown() == {"PodStatus": None, "PodManagerPort": 50051}
        await scene.operator(None, "--no-leader-elect")
        async with asyncio.timeout(PATIENCE):
            while (await shown()).get("tarragon", {}).get("state") != "Running":
                await scene.clock.sleep(0.2)
        assert (await shown())["PodStatus"]["phase"] == "Running"
