"""Where replicas go on a real cluster, with its own scheduler and volume controller."""

from __future__ import annotations

from typing import Any

import pytest

from tarragon.kube.core import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES
from tarragon.plan.objects.placement import Placement
from tarragon.plan.objects.settings import OperatorSettings
from tests.real.ground import HOST, Ground, a_ground, group
from tools.controlplane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]


async def lazy_class(ground: Ground) -> str:
    """Claims of it are bound when kube-scheduler binds the first pod that uses them."""
    name = ground.name("local")
    await ground.create(
        STORAGE_CLASSES, name, provisioner="kubernetes.io/no-provisioner", volumeBindingMode="WaitForFirstConsumer"
    )
    return name


async def local_volume(ground: Ground, word: str, node: str, kind: str) -> None:
    here = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [node]}]}
    spec = {
        "storageClassName": kind,
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "local": {"path": "/data"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [here]}},
    }
    await ground.create(PERSISTENT_VOLUMES, ground.name(word), spec=spec)


async def claim(ground: Ground, name: str, kind: str) -> None:
    spec = {
        "storageClassName": kind,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    await ground.create(PERSISTENT_VOLUME_CLAIMS, name, spec=spec)


def using(claim: str) -> dict[str, Any]:
    return {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}


async def test_a_volume_that_waits_for_its_first_pod_is_bound_where_it_is_and_a_direct_pod_waits_for_ever(
    control_plane: ControlPlane,
) -> None:
    async with a_ground(control_plane, "lazy-volume") as ground:
        await ground.node("a")
        home = await ground.node("b")
        kind = await lazy_class(ground)
        for word in ("one", "two"):
            await local_volume(ground, word, home, kind)
            await claim(ground, word, kind)
        container = {"name": "c", "image": "i"}
        await ground.create(PODS, "direct", spec={"containers": [container], "nodeName": home, **using("two")})
        ground.start_operator()
        await ground.submit("a", Worker=group(2, **using("one")))
        await ground.until(lambda: ground.status("a").running_replicas == 2)

        assert [ground.pods[f"a-worker-{index}"]["spec"]["nodeName"] for index in (0, 1)] == [home, home]
        assert (await ground.get(PERSISTENT_VOLUME_CLAIMS, "one"))["status"]["phase"] == "Bound"
        assert (await ground.get(PERSISTENT_VOLUME_CLAIMS, "two"))["status"]["phase"] == "Pending"


async def test_once_a_claim_is_bound_its_pods_are_placed_directly_again(control_plane: ControlPlane) -> None:
    async with a_ground(control_plane, "bound-volume") as ground:
        await ground.node("a")
        home = await ground.node("b")
        kind = await lazy_class(ground)
        await local_volume(ground, "one", home, kind)
        await claim(ground, "one", kind)
        ground.start_operator()
        await ground.submit("first", Worker=group(1, **using("one")))
        await ground.until_phase("first", "Running")
        await ground.submit("second", Worker=group(1, **using("one")))
        await ground.until_phase("second", "Running")

        assert "affinity" in ground.pods["first-worker-0"]["spec"]
        assert "affinity" not in ground.pods["second-worker-0"]["spec"]
        assert ground.pods["second-worker-0"]["spec"]["nodeName"] == home


async def test_by_affinity_kube_scheduler_binds_every_replica_to_the_place_that_it_was_admitted_to(
    control_plane: ControlPlane,
) -> None:
    async with a_ground(control_plane, "by-affinity") as ground:
        for word in ("a", "b"):
            await ground.node(word, cpu="2")
        ground.start_operator(OperatorSettings(placement=Placement.AFFINITY))
        wanted: dict[str, Any] = {"nodeSelector": {"ground": ground.namespace}, "schedulerName": "tarragon"}
        await ground.submit("a", PS=group(1, **wanted), Worker=group(3, **wanted))
        await ground.until(lambda: ground.status("a").running_replicas == 4)
        admission = ground.status("a").admission

        assert admission is not None
        places = {f"a-{replica}": node for replica, node in admission.nodes.items()}
        assert {name: pod["spec"]["nodeName"] for name, pod in ground.pods.items()} == places
        assert sorted(places.values()) == [ground.name("a")] * 2 + [ground.name("b")] * 2


async def test_what_kube_scheduler_cannot_bind_gives_its_places_back_with_its_words(
    control_plane: ControlPlane,
) -> None:
    """It looks at what we don't: here, at a claim that nobody has made."""
    async with a_ground(control_plane, "unbound") as ground:
        await ground.node("a")
        ground.start_operator(OperatorSettings(placement=Placement.AFFINITY, creation_timeout=2))
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "nowhere"}}]
        await ground.submit("a", Worker=group(2, nodeSelector={"ground": ground.namespace}, volumes=volumes))
        await ground.until(lambda: ground.waits_for("a") == "Unschedulable")
        await ground.until(lambda: not ground.pods)

        said = ground.condition("a", "Admitted")
        assert said is not None
        assert "can't be bound: " in said.message
        assert '"nowhere" not found' in said.message

        await ground.node("b")
        await ground.submit("small", Worker=group(1, nodeSelector={"ground": ground.namespace}))
        await ground.until_phase("small", "Running")
