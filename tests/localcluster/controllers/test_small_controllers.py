from __future__ import annotations

from typing import Any

from tarragon.kube.core import (
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    SERVICE_ACCOUNTS,
    SERVICES,
)
from tarragon.kube.meta import Key
from tarragon.localcluster.controllers.claims import ClaimController
from tarragon.localcluster.controllers.endpoints import EndpointsController
from tarragon.localcluster.controllers.service_accounts import ServiceAccountController
from tests.localcluster.controllers.world import Json, World, pod_spec

# ---------------------------------------------------------------------------------------------------- service accounts


async def test_every_namespace_has_a_service_account_called_default(world: World) -> None:
    world.start(ServiceAccountController(world.client, world.clock, world.jitter))
    await world.there("serviceaccounts/default/default", "serviceaccounts/kube-system/default")
    await world.create(NAMESPACES, "team")

    await world.there("serviceaccounts/team/default")


async def test_a_deleted_service_account_comes_back(world: World) -> None:
    world.start(ServiceAccountController(world.client, world.clock, world.jitter))
    account = "serviceaccounts/default/default"
    await world.there(account)
    first = world.objects[account]["metadata"]["uid"]
    await world.delete(SERVICE_ACCOUNTS, "default")

    await world.until(lambda: account in world.objects and world.objects[account]["metadata"]["uid"] != first)


# -------------------------------------------------------------------------------------------------------------- claims


async def bound(world: World, name: str) -> Json:
    claim = f"persistentvolumeclaims/default/{name}"
    await world.until(lambda: world.objects.get(claim, {}).get("status", {}).get("phase") == "Bound")
    status: Json = world.objects[claim]["status"]
    return status


async def test_a_claim_is_bound_with_the_size_it_asked_for(world: World) -> None:
    world.start(ClaimController(world.client, world.clock, world.jitter))
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "10Gi"}}}
    await world.create(PERSISTENT_VOLUME_CLAIMS, "data", spec=spec)

    status = await bound(world, "data")
    assert status["accessModes"] == ["ReadWriteMany"]
    assert status["capacity"] == {"storage": "10Gi"}


async def test_a_claim_is_bound_once_and_then_left_alone(world: World) -> None:
    world.start(ClaimController(world.client, world.clock, world.jitter))
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    for name in ("one", "two"):
        await world.create(PERSISTENT_VOLUME_CLAIMS, name, spec=spec)
        await bound(world, name)

    assert len([one for one in world.happened if one.what.endswith("/one")]) == 2


# ----------------------------------------------------------------------------------------------------------- endpoints


def serve_endpoints(world: World, allotted: dict[tuple[str, int], int]) -> None:
    def local_port(service: Key, port: int) -> int | None:
        return allotted.get((service.name, port))

    world.start(EndpointsController(world.client, local_port, world.clock, world.jitter))


async def a_service(world: World, app: str, **port: Any) -> None:
    await world.create(SERVICES, app, spec={"selector": {"app": app}, "ports": [{"port": 80, **port}]})


async def a_pod(world: World, name: str, app: str, **container: Any) -> None:
    await world.create(PODS, name, labels={"app": app}, spec=pod_spec(container=container, nodeName="here"))


async def report(world: World, name: str, *, ready: bool) -> None:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    status = {"phase": "Running", "podIP": "127.0.0.1", "conditions": conditions}
    await world.client.patch(PODS, Key("default", name), {"status": status}, subresource="status")


def subsets(world: World, name: str) -> Any:
    return world.objects.get(f"endpoints/default/{name}", {}).get("subsets")


async def test_a_service_is_reached_at_the_port_that_stands_for_it(world: World) -> None:
    serve_endpoints(world, {("ps-0", 80): 20123})
    await a_service(world, "ps-0", name="grpc")
    await a_pod(world, "ps-0", "ps-0")
    await report(world, "ps-0", ready=True)

    await world.until(lambda: bool(subsets(world, "ps-0")))
    [subset] = subsets(world, "ps-0")
    assert [address["ip"] for address in subset["addresses"]] == ["127.0.0.1"]
    assert subset["addresses"][0]["targetRef"]["name"] == "ps-0"
    assert subset["ports"] == [{"name": "grpc", "port": 20123, "protocol": "TCP"}]


async def test_a_service_that_nobody_named_is_reached_where_its_pod_listens(world: World) -> None:
    serve_endpoints(world, {})
    await a_service(world, "web", targetPort="http")
    await a_pod(world, "web-1", "web", ports=[{"name": "http", "containerPort": 8080}])
    await report(world, "web-1", ready=True)

    await world.until(lambda: bool(subsets(world, "web")))
    assert subsets(world, "web")[0]["ports"] == [{"port": 8080, "protocol": "TCP"}]


async def test_a_pod_that_is_not_ready_is_not_an_address_yet_and_a_finished_one_not_any_more(world: World) -> None:
    serve_endpoints(world, {})
    await a_service(world, "web")
    await a_pod(world, "web-1", "web")
    await report(world, "web-1", ready=False)
    await world.until(lambda: bool(subsets(world, "web")) and "notReadyAddresses" in subsets(world, "web")[0])

    await report(world, "web-1", ready=True)
    await world.until(lambda: "addresses" in subsets(world, "web")[0])

    await world.client.patch(PODS, Key("default", "web-1"), {"status": {"phase": "Succeeded"}}, subresource="status")
    await world.until(lambda: not subsets(world, "web"))


async def test_endpoints_go_with_their_service(world: World) -> None:
    serve_endpoints(world, {})
    await a_service(world, "web")
    await world.there("endpoints/default/web")
    await world.delete(SERVICES, "web")

    await world.gone("endpoints/default/web")


async def test_endpoints_of_a_service_without_selector_are_somebody_elses(world: World) -> None:
    serve_endpoints(world, {})
    await world.create(SERVICES, "outside", spec={"ports": [{"port": 80}]})
    await a_service(world, "web")
    await world.there("endpoints/default/web")

    assert "endpoints/default/outside" not in world.objects
