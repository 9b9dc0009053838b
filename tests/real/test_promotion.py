"""The environments of examples/promotion, as kubectl takes them to a real API server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.deploy.stage import Kubectl
from tools.controlplane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.kubectl, pytest.mark.timeout(180)]

ENVIRONMENTS = {"dev": "default", "test": "ml-test", "prod": "ml-prod"}
"""With their namespaces."""

Json = dict[str, Any]


async def test_the_same_job_is_promoted_with_what_each_environment_changes(emptied_control_plane: ControlPlane) -> None:
    kubectl = Kubectl(emptied_control_plane.kubeconfig)
    for namespace in ("ml-test", "ml-prod"):
        await kubectl("create", "namespace", namespace)
    found: dict[str, Json] = {}

    for name, namespace in ENVIRONMENTS.items():
        folder = f"examples/promotion/{name}"
        await kubectl("apply", "-k", folder, "--dry-run=server")
        assert (await kubectl.run("diff", "-k", folder))[0] == 1
        await kubectl("apply", "-k", folder)
        assert (await kubectl.run("diff", "-k", folder))[0] == 0
        listed = json.loads(await kubectl("get", "tfjob,configmap", "-n", namespace, "-o", "json"))
        objects = {each["metadata"]["name"]: each for each in listed["items"]}
        job = objects["fit"]
        pod = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
        (container,) = pod["containers"]
        assert "fit.py" in objects[pod["volumes"][0]["configMap"]["name"]]["data"]
        found[name] = {
            "image": container["image"].rpartition(":")[2],
            "replicas": job["spec"]["tfReplicaSpecs"]["Worker"]["replicas"],
            "memory": container["resources"]["requests"]["memory"],
            "parameters": objects[container["envFrom"][0]["configMapRef"]["name"]]["data"],
            "policy": job["spec"]["runPolicy"],
        }
        await kubectl("delete", "-k", folder)
    await kubectl("delete", "namespace", "ml-test", "ml-prod", "--wait=false")

    priority = {"priorityClass": "fit-prod"}
    assert found == {
        "dev": {
            "image": "dev",
            "replicas": 1,
            "memory": "64Mi",
            "parameters": {"EPOCHS": "100", "LEARNING_RATE": "0.5"},
            "policy": {"cleanPodPolicy": "None"},
        },
        "test": {
            "image": "1.4.0-rc.1",
            "replicas": 2,
            "memory": "64Mi",
            "parameters": {"EPOCHS": "1000", "LEARNING_RATE": "0.5"},
            "policy": {"cleanPodPolicy": "All", "ttlSecondsAfterFinished": 3600},
        },
        "prod": {
            "image": "1.3.2",
            "replicas": 4,
            "memory": "512Mi",
            "parameters": {"EPOCHS": "10000", "LEARNING_RATE": "0.1"},
            "policy": {"cleanPodPolicy": "All", "backoffLimit": 10, "schedulingPolicy": priority},
        },
    }
