"""A user who may edit one namespace tries to take over a job of another one, on a real control plane."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from tarragon.client.errors import AlreadyExists
from tarragon.client.http.client import HttpClient
from tarragon.job.status import JobStatus
from tarragon.job.status_encoding import decode_status
from tarragon.kube.core import NAMESPACES, PODS
from tarragon.kube.meta import Key, Resource
from tests.real.scene import TFJOBS, Scene, a_scene, connect, tfjob
from tests.real.test_adoption import tarragon
from tools.controlplane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

Json = dict[str, Any]
VICTIM = Key("va", "victim")
ATTACKER, OPERATOR = "mallory", "operator"
ROLE_BINDINGS: Resource[Json] = Resource(
    group="rbac.authorization.k8s.io", version="v1", plural="rolebindings", kind="RoleBinding", model=dict
)


@asynccontextmanager
async def a_victim(plane: ControlPlane) -> AsyncIterator[tuple[Scene, HttpClient]]:
    """The job `va/victim`, which runs, and a client of somebody who may edit `vb` and nothing else."""
    async with a_scene(plane) as scene:
        for name in ("va", "vb"):
            with suppress(AlreadyExists):  # a control plane is emptied of what is in its namespaces
                await scene.http.create(NAMESPACES, {"metadata": {"name": name}})
            while not await asyncio.to_thread(plane.has_service_account, name):
                await scene.clock.sleep(0.05)
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": ATTACKER}
        binding = {"metadata": {"name": "edit", "namespace": "vb"}, "roleRef": role, "subjects": [subject]}
        with suppress(AlreadyExists):
            await scene.http.create(ROLE_BINDINGS, binding)
        await scene.operator(plane.user(OPERATOR, ["system:masters"]), "--no-leader-elect")
        job = tfjob("victim", policy="ExitCode")
        await scene.http.create(TFJOBS, {**job, "metadata": {"name": "victim", "namespace": "va"}})
        await scene.until(lambda: status(scene).phase.value == "Running" and len(uids(scene, "va")) == 3)
        async with connect(plane.user(ATTACKER)) as attacker:
            yield scene, attacker


def status(scene: Scene) -> JobStatus:
    job = scene.jobs.objects.get(VICTIM)
    return decode_status(None if job is None else job.status)


def uids(scene: Scene, namespace: str) -> dict[str, str]:
    return {key.name: pod.metadata.uid for key, pod in scene.pods.objects.items() if key.namespace == namespace}


def forged(scene: Scene, pod: Key, fate: Json, **reference: str) -> Json:
    """A pod that names the victim's uid; `fate`: annotations for the hollow node that it runs on."""
    job = scene.jobs.objects[VICTIM]
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "victim", "uid": job.metadata.uid}
    labels = scene.pods.objects[Key("va", "victim-worker-0")].metadata.labels
    metadata = {
        "name": pod.name,
        "namespace": pod.namespace,
        "labels": dict(labels),
        "annotations": {f"tarragon.dev/hollow-{name}": value for name, value in fate.items()},
        "ownerReferences": [{**owner, "controller": True, **reference}],
    }
    spec = {"containers": [{"name": "tensorflow", "image": "i"}], "nodeName": "hollow-0", "restartPolicy": "Never"}
    return {"metadata": metadata, "spec": spec}


def deleted_in(scene: Scene, namespace: str) -> list[str]:
    """What the operator has deleted there, by the audit log."""
    return [
        f"{event['objectRef']['resource']}/{event['objectRef'].get('name', '')}"
        for event in scene.plane.audit_events()
        if event["user"]["username"] == OPERATOR
        and event["verb"] in {"delete", "deletecollection"}
        and event["objectRef"].get("namespace") == namespace
    ]


async def everything_was_looked_at(scene: Scene) -> None:
    """Return when the operator has seen all pods that are there now, and looked at the victim after that."""
    await scene.submit(["later"], lambda name: tfjob(name, seconds=0.2))
    await scene.until_states(["later"], "Succeeded")
    changed = await scene.http.patch(TFJOBS, VICTIM, {"spec": {"runPolicy": {"backoffLimit": 7}}})
    wanted = changed.metadata.generation
    await scene.until(lambda: scene.jobs.objects[VICTIM].status["tarragon"]["observedGeneration"] == wanted)


async def test_who_may_edit_one_namespace_decides_nothing_about_a_job_of_another(
    emptied_control_plane: ControlPlane,
) -> None:
    async with a_victim(emptied_control_plane) as (scene, attacker):
        before = uids(scene, "va")
        nowhere = "nowhere.example/v1"
        fates = {"victim-worker-0": {"seconds": "0.1"}, "victim-worker-1": {"seconds": "0.1", "exit-code": "137"}}
        for name, fate in fates.items():
            await attacker.create(PODS, forged(scene, Key("vb", name), fate, apiVersion=nowhere))
        await attacker.create(PODS, forged(scene, Key("vb", "victim-ps-0"), {}, apiVersion=nowhere))
        # The garbage collector takes that one: its owner is in another namespace.
        await attacker.create(PODS, forged(scene, Key("vb", "victim-worker-7"), {"seconds": "0.1"}))
        ends = {"victim-worker-0": "Succeeded", "victim-worker-1": "Failed", "victim-ps-0": "Running"}
        await scene.until(
            lambda: (
                {key.name: pod.status.phase for key, pod in scene.pods.objects.items() if key.namespace == "vb"} == ends
            )
        )
        await everything_was_looked_at(scene)

        assert status(scene).phase.value == "Running"
        assert scene.jobs.objects[VICTIM].status["tarragon"].get("restarts", {}).get("total", 0) == 0
        assert uids(scene, "va") == before
        assert deleted_in(scene, "vb") == deleted_in(scene, "va") == []
        assert (await tarragon(scene, "-n", "vb", "list")).count("victim") == 0

        await scene.http.patch(TFJOBS, VICTIM, {"spec": {"runPolicy": {"suspend": True}}})
        await scene.until(lambda: not uids(scene, "va"))
        assert {f"pods/{name}" for name in before} <= set(deleted_in(scene, "va"))
        assert deleted_in(scene, "vb") == []
        assert set(uids(scene, "vb")) == ends.keys()


@pytest.mark.parametrize(
    "wrong",
    [{"apiVersion": "nowhere.example/v1"}, {"kind": "Nothing"}, {"apiVersion": "v1", "kind": "Nothing", "name": "x"}],
    ids=["group", "kind", "name"],
)
async def test_a_pod_beside_a_job_whose_reference_names_another_object_is_shown_as_nobodys(
    emptied_control_plane: ControlPlane, wrong: dict[str, str]
) -> None:
    """Of kinds that the garbage collector can't resolve: else it takes the pod."""
    async with a_victim(emptied_control_plane) as (scene, _):
        key = Key("va", "victim-worker-7")
        await scene.http.create(PODS, forged(scene, key, {"seconds": "0.1", "exit-code": "137"}, **wrong))
        await scene.until(lambda: key in scene.pods.objects and scene.pods.objects[key].status.phase == "Failed")
        await everything_was_looked_at(scene)

        assert status(scene).phase.value == "Running"
        assert deleted_in(scene, "va") == []
        listed, described = (
            await tarragon(scene, "-n", "va", "list"),
            await tarragon(scene, "-n", "va", "describe", "victim"),
        )
        assert "Running" in listed
        assert "3/3" in listed
        assert "worker-1" in described
        assert "worker-7" not in described
        assert "worker-7" not in await tarragon(scene, "-n", "va", "logs", "victim")
