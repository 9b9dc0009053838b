"""Kubernetes' own gang scheduling (1.37): a real kube-scheduler places gangs by the PodGroups of a real operator."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tarragon.client.port import DeleteOptions
from tarragon.job.annotations import POD_GROUP_ANNOTATION
from tarragon.kube.core import PODS
from tarragon.kube.meta import Key
from tarragon.plan.objects.podgroup_kinds import POD_GROUP_KINDS
from tests.real.gangs import serves_native_pod_groups, start_with_gangs
from tests.real.scene import TFJOBS, Scene, a_scene, tfjob

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

Json = dict[str, Any]
GROUPS = POD_GROUP_KINDS["native"].resource


@pytest.fixture
async def with_gangs(tmp_path: Path) -> AsyncIterator[Scene]:
    plane = start_with_gangs(tmp_path / "plane")
    try:
        async with a_scene(plane, nodes=1) as scene:
            yield scene
    finally:
        plane.stop()


def gang(name: str, workers: int, cpu: str) -> Json:
    job = tfjob(name, ps=0, workers=workers)
    del job["spec"]["tfReplicaSpecs"]["PS"]
    job["metadata"]["annotations"] = {POD_GROUP_ANNOTATION: "native"}
    spec = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    spec["schedulerName"] = "default-scheduler"
    spec["containers"][0]["resources"]["requests"]["cpu"] = cpu
    return job


def bound(scene: Scene, job: str) -> set[str]:
    return {key.name for key, pod in scene.pods.objects.items() if key.name.startswith(job) and pod.spec.node_name}


async def test_kubernetes_places_a_gang_whole_or_the_job_says_what_it_lacks(with_gangs: Scene) -> None:
    scene = with_gangs
    await scene.operator()
    if serves_native_pod_groups():
        await stays_unbound_until_it_fits_whole(scene)
    else:
        await says_what_is_missing(scene)


async def says_what_is_missing(scene: Scene) -> None:
    await scene.submit(["gang"], lambda name: gang(name, workers=4, cpu="15"))
    await scene.until(lambda: "Kubernetes 1.37 with the feature gate GenericWorkload" in message(scene, "gang"))

    assert not scene.pods.objects


async def stays_unbound_until_it_fits_whole(scene: Scene) -> None:
    """A node of 64 CPUs: two of four workers would fit beside the pod that is there."""
    blocker = {"metadata": {"name": "blocker", "namespace": "default"}, "spec": {"containers": [container("30")]}}
    await scene.http.create(PODS.with_model(dict), blocker)
    await scene.until(lambda: bound(scene, "blocker") == {"blocker"})
    await scene.submit(["gang"], lambda name: gang(name, workers=4, cpu="15"))
    workers = {f"gang-worker-{index}" for index in range(4)}
    await scene.until(lambda: all(reason(scene, name) == "Unschedulable" for name in workers))

    assert bound(scene, "gang") == set()
    group = await scene.http.get(GROUPS, Key("default", "gang"))
    assert group.spec["schedulingPolicy"] == {"gang": {"minCount": 4}}
    await scene.until(lambda: "minCount (4) cannot be satisfied" in message(scene, "gang"))

    await scene.http.delete(PODS, Key("default", "blocker"), DeleteOptions(grace_period_seconds=0))
    await scene.until(lambda: bound(scene, "gang") == workers)
    await scene.until_states(["gang"], "Running")

    # kube-controller-manager keeps the PodGroup until the pods are gone; the next pods wait for the next one.
    await suspend(scene, "gang", suspended=True)
    await scene.until(lambda: not any(key.name in workers for key in scene.pods.objects))
    await suspend(scene, "gang", suspended=False)
    await scene.until(lambda: bound(scene, "gang") == workers)
    again = await scene.http.get(GROUPS, Key("default", "gang"))
    assert again.metadata.uid != group.metadata.uid


async def suspend(scene: Scene, job: str, *, suspended: bool) -> None:
    await scene.http.patch(TFJOBS, Key("default", job), {"spec": {"runPolicy": {"suspend": suspended}}})


def message(scene: Scene, job: str) -> str:
    status = scene.jobs.objects[Key("default", job)].status
    return str(status["tarragon"].get("message", "")) if isinstance(status, dict) else ""


def container(cpu: str) -> Json:
    return {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}


def reason(scene: Scene, name: str) -> str:
    pod = scene.pods.objects.get(Key("default", name))
    scheduled = None if pod is None else pod.condition("PodScheduled")
    return "" if scheduled is None else scheduled.reason
