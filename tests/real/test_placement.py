"""Where replicas go on a real cluster, with its own scheduler and volume controller."""

from __future__ import annotations

from typing import Any

import pytest

from tarragon.kube.core import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES
from tarragon.plan.objects.placement import Placement
from tarragon.plan.objects.settings import OperatorSettings
from tests.real.environment import HOST, OperatorEnvironment, an_environment, group
from tools.controlplane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]


async def lazy_class(env: OperatorEnvironment) -> str:
    """Claims of it are bound when kube-scheduler binds the first pod that uses them."""
    name = env.name("local")
    await env.create(
        STORAGE_CLASSES, name, provisioner="kubernetes.io/no-provisioner", volumeBindingMode="WaitForFirstConsumer"
    )
    return name


async def local_volume(env: OperatorEnvironment, word: str, node: str, kind: str) -> None:
    here = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [node]}]}
    spec = {
        "storageClassName": kind,
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "local": {"path": "/data"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [here]}},
    }
    await env.create(PERSISTENT_VOLUMES, env.name(word), spec=spec)


async def claim(env: OperatorEnvironment, name: str, kind: str) -> None:
    spec = {
        "storageClassName": kind,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    await env.create(PERSISTENT_VOLUME_CLAIMS, name, spec=spec)


def using(claim: str) -> dict[str, Any]:
    return {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}


async def test_a_volume_that_waits_for_its_first_pod_is_bound_where_it_is_and_a_direct_pod_waits_for_ever(
    control_plane: ControlPlane,
) -> None:
    async with an_environment(control_plane, "lazy-volume") as env:
        await env.node("a")
        home = await env.node("b")
        kind = await lazy_class(env)
        for word in ("one", "two"):
            await local_volume(env, word, home, kind)
            await claim(env, word, kind)
        container = {"name": "c", "image": "i"}
        await env.create(PODS, "direct", spec={"containers": [container], "nodeName": home, **using("two")})
        env.start_operator()
        await env.submit("a", Worker=group(2, **using("one")))
        await env.until(lambda: env.status("a").running_replicas == 2)

        assert [env.pods[f"a-worker-{index}"]["spec"]["nodeName"] for index in (0, 1)] == [home, home]
        assert (await env.get(PERSISTENT_VOLUME_CLAIMS, "one"))["status"]["phase"] == "Bound"
        assert (await env.get(PERSISTENT_VOLUME_CLAIMS, "two"))["status"]["phase"] == "Pending"


async def test_once_a_claim_is_bound_its_pods_are_placed_directly_again(control_plane: ControlPlane) -> None:
    async with an_environment(control_plane, "bound-volume") as env:
        await env.node("a")
        home = await env.node("b")
        kind = await lazy_class(env)
        await local_volume(env, "one", home, kind)
        await claim(env, "one", kind)
        env.start_operator()
        await env.submit("first", Worker=group(1, **using("one")))
        await env.until_phase("first", "Running")
        await env.submit("second", Worker=group(1, **using("one")))
        await env.until_phase("second", "Running")

        assert "affinity" in env.pods["first-worker-0"]["spec"]
        assert "affinity" not in env.pods["second-worker-0"]["spec"]
        assert env.pods["second-worker-0"]["spec"]["nodeName"] == home


async def test_by_affinity_kube_scheduler_binds_every_replica_to_the_place_that_it_was_admitted_to(
    control_plane: ControlPlane,
) -> None:
    async with an_environment(control_plane, "by-affinity") as env:
        for word in ("a", "b"):
            await env.node(word, cpu="2")
        env.start_operator(OperatorSettings(placement=Placement.AFFINITY))
        wanted: dict[str, Any] = {"nodeSelector": {"test-env": env.namespace}, "schedulerName": "tarragon"}
        await env.submit("a", PS=group(1, **wanted), Worker=group(3, **wanted))
        await env.until(lambda: env.status("a").running_replicas == 4)
        admission = env.status("a").admission

        assert admission is not None
        places = {f"a-{replica}": node for replica, node in admission.nodes.items()}
        assert {name: pod["spec"]["nodeName"] for name, pod in env.pods.items()} == places
        assert sorted(places.values()) == [env.name("a")] * 2 + [env.name("b")] * 2


async def test_what_kube_scheduler_cannot_bind_gives_its_places_back_with_its_words(
    control_plane: ControlPlane,
) -> None:
    """It looks at what we don't: here, at a claim that nobody has made."""
    async with an_environment(control_plane, "unbound") as env:
        await env.node("a")
        env.start_operator(OperatorSettings(placement=Placement.AFFINITY, creation_timeout=2))
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "nowhere"}}]
        await env.submit("a", Worker=group(2, nodeSelector={"test-env": env.namespace}, volumes=volumes))
        await env.until(lambda: getattr(env.condition("a", "Admitted"), "reason", "") == "Unschedulable")
        # At once: two seconds later it is tried again.
        said = env.condition("a", "Admitted")
        assert said is not None
        assert "can't be bound: " in said.message
        assert '"nowhere" not found' in said.message
        await env.until(lambda: not env.pods)

        await env.node("b")
        await env.submit("small", Worker=group(1, nodeSelector={"test-env": env.namespace}))
        await env.until_phase("small", "Running")
