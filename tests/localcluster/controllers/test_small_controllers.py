from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest

from tarragon.client.port import ALL_OBJECTS
from tarragon.client.streams import closing_stream
from tarragon.kube.core import (
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    SERVICE_ACCOUNTS,
    SERVICES,
)
from tarragon.kube.meta import Key
from tarragon.localcluster.controllers.claims import ClaimController
from tarragon.localcluster.controllers.pod_gc import QUARANTINE_SECONDS, PodGarbageCollector
from tarragon.localcluster.controllers.service_accounts import ServiceAccountController
from tarragon.localcluster.controllers.taints import TaintController
from tarragon.localcluster.services.endpoint_slices import ENDPOINT_SLICES, EndpointSliceController
from tarragon.localcluster.services.endpoints import EndpointsController
from tests.localcluster.controllers.world import ControllerTest, EmbeddedCluster, Json, pod_spec
from tests.operator.test_dragon import Jumping

# ---------------------------------------------------------------------------------------------------- service accounts


def account_for(scene: ControllerTest) -> None:
    scene.begin(lambda world: ServiceAccountController(world.client, world.clock, world.jitter))


async def test_every_namespace_has_a_service_account_called_default(scene: ControllerTest) -> None:
    account_for(scene)
    await scene.there("serviceaccounts/default/default", "serviceaccounts/kube-system/default")
    await scene.create(NAMESPACES, "team")

    await scene.there("serviceaccounts/team/default")


async def test_a_deleted_service_account_is_created_again(scene: ControllerTest) -> None:
    account_for(scene)
    account = "serviceaccounts/default/default"
    await scene.there(account)
    first = scene.objects[account]["metadata"]["uid"]
    await scene.delete(SERVICE_ACCOUNTS, "default")

    await scene.until(lambda: account in scene.objects and scene.objects[account]["metadata"]["uid"] != first)


# -------------------------------------------------------------------------------------------------------------- taints


async def tainted(scene: ControllerTest, node: str, *taints: Json) -> None:
    await scene.client.patch(NODES, scene.key(NODES, node, ""), {"spec": {"taints": list(taints)}})


async def on_a_node(scene: ControllerTest, *pods: str, **spec: Any) -> None:
    scene.begin(lambda world: TaintController(world.client, world.clock, world.jitter))
    await scene.create(NODES, "n", namespace="")
    # A real node controller removes the first taint of a new node, and with it taints that it has not read yet.
    await scene.until(lambda: "nodes/n" in scene.objects and not scene.objects["nodes/n"].get("spec", {}).get("taints"))
    for pod in pods:
        body = {**pod_spec(), "nodeName": scene.key(NODES, "n", "").name, "terminationGracePeriodSeconds": 0, **spec}
        await scene.create(PODS, pod, spec=body)
        spec = {"tolerations": [{"key": "k", "operator": "Exists"}]}
    await scene.there(*(f"pods/default/{pod}" for pod in pods))


def is_leaving(scene: ControllerTest, pod: str) -> bool:
    found = scene.objects.get(f"pods/default/{pod}")
    return found is None or "deletionTimestamp" in found["metadata"]


async def test_a_taint_evicts_pods_that_do_not_tolerate_it(scene: ControllerTest) -> None:
    await on_a_node(scene, "leaves", "stays")
    await tainted(scene, "n", {"key": "k", "value": "v", "effect": "NoExecute"})
    await scene.until(lambda: is_leaving(scene, "leaves"))

    assert not is_leaving(scene, "stays")


async def test_a_pod_is_evicted_when_its_toleration_seconds_are_over(scene: ControllerTest) -> None:
    a_second = [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}]
    await on_a_node(scene, "leaves", tolerations=a_second)
    began = scene.clock.monotonic()
    await tainted(scene, "n", {"key": "k", "effect": "NoExecute"})
    await scene.until(lambda: is_leaving(scene, "leaves"))

    assert scene.clock.monotonic() - began > 0.9


# ------------------------------------------------------------------------------------------------------- lost nodes


class Noticed(Jumping):
    """A clock that signals when a task begins to sleep for longer than a moment."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = asyncio.Semaphore(0)

    async def sleep(self, seconds: float) -> None:
        if seconds > 1:
            self.waits.release()
        await super().sleep(seconds)


async def test_pods_of_a_deleted_node_fail_and_are_deleted_unless_it_returns_soon(world: EmbeddedCluster) -> None:
    clock = Noticed()
    world.start(PodGarbageCollector(world.client, clock, world.jitter))
    for name in ("back", "lost"):
        await world.create(NODES, name, namespace="")
        await world.create(PODS, f"on-{name}", spec={**pod_spec(), "nodeName": name})
    await world.create(PODS, "waits", spec=pod_spec())
    running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await world.patch(PODS, "on-lost", {"status": running}, subresource="status")
    since = (await world.client.list(PODS)).resource_version

    await world.delete(NODES, "back", namespace="")
    await clock.waits.acquire()
    await world.create(NODES, "back", namespace="")
    await world.delete(NODES, "lost", namespace="")
    await clock.waits.acquire()
    async with closing_stream(world.client.watch(PODS, ALL_OBJECTS, since)) as events:
        clock.jump(QUARANTINE_SECONDS)
        received = (await anext(events)).object

    assert received is not None
    assert received.metadata.name == "on-lost"
    assert received.status.phase == "Failed"
    assert {each.type: each.status for each in received.status.conditions} == {
        "Ready": "True",
        "DisruptionTarget": "True",
    }
    await world.gone("pods/default/on-lost")
    assert {"pods/default/on-back", "pods/default/waits"} <= set(world.objects)


@pytest.mark.parametrize("odd", [{"status": "True"}, None], ids=["without a type", "null"])
async def test_malformed_conditions_do_not_keep_a_pod_of_a_deleted_node(world: EmbeddedCluster, odd: Json) -> None:
    clock = Noticed()
    world.start(PodGarbageCollector(world.client, clock, world.jitter))
    await world.create(NODES, "lost", namespace="")
    await world.create(PODS, "odd", spec={**pod_spec(), "nodeName": "lost"})
    await world.patch(PODS, "odd", {"status": {"conditions": [odd]}}, subresource="status")
    await world.delete(NODES, "lost", namespace="")
    await clock.waits.acquire()
    clock.jump(QUARANTINE_SECONDS)

    await world.gone("pods/default/odd")


# -------------------------------------------------------------------------------------------------------------- claims


async def bound(world: EmbeddedCluster, name: str) -> Json:
    claim = f"persistentvolumeclaims/default/{name}"
    await world.until(lambda: world.objects.get(claim, {}).get("status", {}).get("phase") == "Bound")
    status: Json = world.objects[claim]["status"]
    return status


async def test_a_claim_is_bound_with_the_requested_size(world: EmbeddedCluster) -> None:
    world.start(ClaimController(world.client, world.clock, world.jitter))
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "10Gi"}}}
    await world.create(PERSISTENT_VOLUME_CLAIMS, "data", spec=spec)

    status = await bound(world, "data")
    assert status["accessModes"] == ["ReadWriteMany"]
    assert status["capacity"] == {"storage": "10Gi"}


async def test_a_claim_is_bound_only_once(world: EmbeddedCluster) -> None:
    world.start(ClaimController(world.client, world.clock, world.jitter))
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    for name in ("one", "two"):
        await world.create(PERSISTENT_VOLUME_CLAIMS, name, spec=spec)
        await bound(world, name)

    assert len([one for one in world.happened if one.what.endswith("/one")]) == 2


# ----------------------------------------------------------------------------------------------------------- endpoints

POD_IP = "10.1.2.3"  # a real server takes no loopback address


def serve_endpoints(scene: ControllerTest, allotted: dict[tuple[str, int], int]) -> None:
    def local_port(service: Key, port: int) -> int | None:
        return allotted.get((service.name, port))

    scene.begin(lambda world: EndpointsController(world.client, local_port, world.clock, world.jitter))


async def a_service(scene: ControllerTest, app: str, **port: Any) -> None:
    await scene.create(SERVICES, app, spec={"selector": {"app": app}, "ports": [{"port": 80, **port}]})


async def a_pod(scene: ControllerTest, name: str, app: str, **container: Any) -> None:
    await scene.create(
        PODS, name, labels={"app": app}, spec=pod_spec(container=container, nodeName="here", restartPolicy="Never")
    )


async def report(scene: ControllerTest, name: str, *, ready: bool, phase: str = "Running") -> None:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    status = {"phase": phase, "podIP": POD_IP, "conditions": conditions}
    await scene.patch(PODS, name, {"status": status}, subresource="status")


def subsets(scene: ControllerTest, name: str) -> Any:
    return scene.objects.get(f"endpoints/default/{name}", {}).get("subsets")


async def test_endpoints_have_the_translated_port_of_a_service(world: EmbeddedCluster) -> None:
    serve_endpoints(world, {("ps-0", 80): 20123})
    await a_service(world, "ps-0", name="grpc")
    await a_pod(world, "ps-0", "ps-0")
    await report(world, "ps-0", ready=True)

    await world.until(lambda: bool(subsets(world, "ps-0")))
    [subset] = subsets(world, "ps-0")
    assert [address["ip"] for address in subset["addresses"]] == ["127.0.0.1"]
    assert subset["addresses"][0]["targetRef"]["name"] == "ps-0"
    assert subset["ports"] == [{"name": "grpc", "port": 20123, "protocol": "TCP"}]


async def test_endpoints_without_a_translated_port_have_the_target_port(scene: ControllerTest) -> None:
    serve_endpoints(scene, {})
    await a_service(scene, "web", targetPort="http")
    await a_pod(scene, "web-1", "web", ports=[{"name": "http", "containerPort": 8080}])
    await report(scene, "web-1", ready=True)

    await scene.until(lambda: bool(subsets(scene, "web")))
    assert subsets(scene, "web")[0]["ports"] == [{"port": 8080, "protocol": "TCP"}]


async def test_only_ready_unfinished_pods_are_ready_addresses(scene: ControllerTest) -> None:
    serve_endpoints(scene, {})
    await a_service(scene, "web")
    await a_pod(scene, "web-1", "web")
    await report(scene, "web-1", ready=False)
    await scene.until(lambda: bool(subsets(scene, "web")) and "notReadyAddresses" in subsets(scene, "web")[0])

    await report(scene, "web-1", ready=True)
    await scene.until(lambda: "addresses" in subsets(scene, "web")[0])

    await report(scene, "web-1", ready=False, phase="Succeeded")
    await scene.until(lambda: not subsets(scene, "web"))


async def test_endpoints_are_deleted_with_their_service(scene: ControllerTest) -> None:
    serve_endpoints(scene, {})
    await a_service(scene, "web")
    await scene.there("endpoints/default/web")
    await scene.delete(SERVICES, "web")

    await scene.gone("endpoints/default/web")


async def test_endpoints_of_a_service_without_selector_are_not_changed(scene: ControllerTest) -> None:
    serve_endpoints(scene, {})
    await scene.create(SERVICES, "outside", spec={"ports": [{"port": 80}]})
    await a_service(scene, "web")
    await scene.there("endpoints/default/web")

    assert "endpoints/default/outside" not in scene.objects


# ----------------------------------------------------------------------------------------------------- endpoint slices


async def first_slice(world: EmbeddedCluster, holds: Callable[[Json], bool]) -> Json:
    """The first slice in a watch for which a condition holds."""
    watch = world.client.watch(ENDPOINT_SLICES.with_model(dict), ALL_OBJECTS, "0")
    async with asyncio.timeout(60), aclosing(watch) as events:  # type: ignore[type-var]
        async for event in events:
            if event.object is not None and holds(event.object):
                return event.object
    raise AssertionError("a watch does not end")


async def test_endpoints_are_mirrored_into_slices(world: EmbeddedCluster) -> None:
    serve_endpoints(world, {("web", 80): 20123})
    world.start(EndpointSliceController(world.client, world.clock, world.jitter))
    await a_service(world, "web", name="http")
    await first_slice(world, lambda one: not one["endpoints"])

    await a_pod(world, "web-1", "web")
    await report(world, "web-1", ready=True)
    received = await first_slice(
        world, lambda one: bool(one["endpoints"]) and one["endpoints"][0]["conditions"]["ready"]
    )

    assert received["metadata"]["labels"]["kubernetes.io/service-name"] == "web"
    assert received["metadata"]["ownerReferences"][0]["kind"] == "Endpoints"
    assert received["ports"] == [{"name": "http", "port": 20123, "protocol": "TCP"}]
    assert received["endpoints"][0]["addresses"] == ["127.0.0.1"]
    assert received["endpoints"][0]["targetRef"]["name"] == "web-1"


async def test_headless_services_have_no_slices(world: EmbeddedCluster) -> None:
    serve_endpoints(world, {})
    world.start(EndpointSliceController(world.client, world.clock, world.jitter))
    await world.create(
        SERVICES, "quiet", spec={"clusterIP": "None", "selector": {"app": "web"}, "ports": [{"port": 80}]}
    )
    await world.there("endpoints/default/quiet")
    await a_service(world, "web")

    first = await first_slice(world, lambda _: True)

    assert first["metadata"]["labels"]["kubernetes.io/service-name"] == "web"
