"""What kube-scheduler does better than Tarragon, and is left to: its own gangs (1.37), and devices that pods claim."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import pytest

from tarragon.client.errors import NotFound
from tarragon.client.port import DeleteOptions
from tarragon.job.annotations import POD_GROUP_ANNOTATION
from tarragon.job.status_encoding import decode_status
from tarragon.kube.core import NODES, PODS
from tarragon.kube.meta import Key, Resource
from tarragon.plan.objects.podgroup_kinds import POD_GROUP_KINDS
from tests.real.gangs import serves_native_pod_groups, start_with_gangs
from tests.real.scene import TFJOBS, Scene, a_scene, tfjob
from tools.controlplane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

Json = dict[str, Any]
GROUPS = POD_GROUP_KINDS["native"].resource


@pytest.fixture(scope="module")
def with_gangs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    plane = start_with_gangs(tmp_path_factory.mktemp("gangs") / "plane")
    yield plane
    plane.stop()


@pytest.fixture
async def scene(with_gangs: ControlPlane) -> AsyncIterator[Scene]:
    """With an operator, and as many nodes of 64 CPUs as a test makes."""
    async with a_scene(with_gangs, nodes=0) as scene:
        await scene.operator()
        yield scene
        for job in list(scene.jobs.objects):
            await scene.http.delete(TFJOBS, job)
        for node in (await scene.http.list(NODES)).items:
            await scene.http.delete(NODES, node.metadata.key)
        await scene.until(lambda: not scene.jobs.objects)


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


async def test_kubernetes_places_a_gang_whole_or_the_job_says_what_it_lacks(scene: Scene) -> None:
    if serves_native_pod_groups():
        await stays_unbound_until_it_fits_whole(scene)
    else:
        await says_what_is_missing(scene)


async def says_what_is_missing(scene: Scene) -> None:
    await scene.submit(["gang"], lambda name: gang(name, workers=4, cpu="15"))
    await scene.until(lambda: "Kubernetes 1.37 with the feature gate GenericWorkload" in message(scene, "gang"))

    assert not scene.pods.objects


async def stays_unbound_until_it_fits_whole(scene: Scene) -> None:
    """Two of four workers would fit beside the pod that is there."""
    await scene.hollow(1)
    blocker = {"metadata": {"name": "blocker", "namespace": "default"}, "spec": {"containers": [container("30")]}}
    await scene.http.create(PODS.with_model(dict), blocker)
    await scene.until(lambda: bound(scene, "blocker") == {"blocker"})
    await scene.submit(["gang"], lambda name: gang(name, workers=4, cpu="15"))
    workers = {f"gang-worker-{index}" for index in range(4)}
    await scene.until(lambda: all(reason(scene, name) == "Unschedulable" for name in workers))

    assert bound(scene, "gang") == set()
    group = await scene.http.get(GROUPS, Key("default", "gang"))
    assert group.spec["schedulingPolicy"] == {"gang": {"minCount": 4}}
    # It says which, depending on whether it looked at the pods or at the group last.
    lacks = re.compile(r"minCount \(4\) cannot be satisfied|Insufficient cpu")
    await scene.until(lambda: lacks.search(message(scene, "gang")) is not None)

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


async def test_pods_that_claim_devices_go_where_these_are(scene: Scene) -> None:
    """Tarragon would take the node whose name comes first, or spread the pods; kube-scheduler knows the devices."""
    if not await serves_claims(scene):
        return
    await scene.hollow(3)
    for resource, body in DEVICES.items():
        await scene.http.create(claims_resource(resource), body)
    await scene.submit(["claims"], claiming)

    await scene.until(lambda: bound(scene, "claims") == {"claims-worker-0", "claims-worker-1"})
    places = {key.name: pod.spec.node_name for key, pod in scene.pods.objects.items() if key.name.startswith("claims")}
    assert set(places.values()) == {"hollow-1"}, places
    await scene.until(lambda: "the devices of their resourceClaims" in admitted(scene, "claims"))


DRIVER = "gpu.example.com"
DEVICES: Mapping[str, Json] = {
    "DeviceClass": {
        "metadata": {"name": "example"},
        "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
    },
    "ResourceSlice": {
        "metadata": {"name": "of-hollow-1"},
        "spec": {
            "driver": DRIVER,
            "nodeName": "hollow-1",
            "pool": {"name": "hollow-1", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}],
        },
    },
    "ResourceClaimTemplate": {
        "metadata": {"name": "one-gpu", "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "example"}}]}}},
    },
}


def claims_resource(kind: str) -> Resource[Json]:
    plural = {"DeviceClass": "deviceclasses"}.get(kind, f"{kind.lower()}s")
    is_namespaced = kind == "ResourceClaimTemplate"
    return Resource(
        group="resource.k8s.io", version="v1", plural=plural, kind=kind, model=dict, namespaced=is_namespaced
    )


async def serves_claims(scene: Scene) -> bool:
    try:
        await scene.http.list(claims_resource("ResourceSlice"))
    except NotFound:  # before 1.34
        return False
    return True


def claiming(name: str) -> Json:
    job = tfjob(name, ps=0, workers=2)
    del job["spec"]["tfReplicaSpecs"]["PS"]
    spec = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    spec["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    return job


def admitted(scene: Scene, job: str) -> str:
    status = {} if (seen := scene.jobs.objects.get(Key("default", job))) is None else seen.status
    found = decode_status(status).condition("Admitted")
    return "" if found is None else found.message


async def suspend(scene: Scene, job: str, *, suspended: bool) -> None:
    await scene.http.patch(TFJOBS, Key("default", job), {"spec": {"runPolicy": {"suspend": suspended}}})


def message(scene: Scene, job: str) -> str:
    found = scene.jobs.objects.get(Key("default", job))
    status = {} if found is None or not isinstance(found.status, dict) else found.status
    return str(status.get("tarragon", {}).get("message", ""))


def container(cpu: str) -> Json:
    return {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}


def reason(scene: Scene, name: str) -> str:
    pod = scene.pods.objects.get(Key("default", name))
    scheduled = None if pod is None else pod.condition("PodScheduled")
    return "" if scheduled is None else scheduled.reason
