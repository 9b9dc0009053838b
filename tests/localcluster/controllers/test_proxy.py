"""The Service proxy with real sockets on loopback addresses, and a server in place of a pod."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tarragon.client.errors import Invalid
from tarragon.kube.core import ENDPOINTS, SERVICES
from tarragon.localcluster.services.kubernetes_service import KubernetesServiceController
from tarragon.localcluster.services.proxy import ServiceProxy
from tests.localcluster.controllers.world import EmbeddedCluster

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")


@asynccontextmanager
async def server(host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[int]:
    """A server that returns its input in capitals. Yields its port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read()).upper())
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(answer, host, port)
    async with listening:
        yield listening.sockets[0].getsockname()[1]


async def asked(host: str, port: int, words: str = "hello") -> str:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(words.encode())
    writer.write_eof()
    try:
        return (await reader.read()).decode()
    finally:
        writer.close()


async def answered(world: EmbeddedCluster, host: str, port: int) -> str:
    """The answer of the server at an address, as soon as it listens."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await asked(host, port)
            except OSError:
                await world.clock.sleep(0.01)


async def service(world: EmbeddedCluster, port: int, target: int, **spec: Any) -> str:
    """Create a Service with a ready endpoint. Returns its address."""
    ports = [{"port": port, "targetPort": target}]
    await world.create(SERVICES, "web", spec={"selector": {"app": "web"}, "ports": ports, **spec})
    await endpoint(world, target)
    await world.there("services/default/web")
    return str(world.objects["services/default/web"]["spec"]["clusterIP"])


async def endpoint(world: EmbeddedCluster, port: int) -> None:
    subset = {"addresses": [{"ip": "127.0.0.1"}], "ports": [{"port": port}]}
    await world.create(ENDPOINTS, "web", subsets=[subset])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@linux_only
async def test_a_service_is_reachable_at_its_cluster_ip_and_node_port(world: EmbeddedCluster) -> None:
    world.start(ServiceProxy(world.client, world.clock, world.jitter))
    async with server() as target:
        port = free_port()
        address = await service(world, port, target, type="NodePort")
        outside = world.objects["services/default/web"]["spec"]["ports"][0]["nodePort"]

        assert await answered(world, address, port) == "HELLO"
        assert await answered(world, "127.0.0.1", outside) == "HELLO"


@linux_only
async def test_a_changed_target_port_takes_effect(world: EmbeddedCluster) -> None:
    world.start(ServiceProxy(world.client, world.clock, world.jitter))
    port, nobodys = free_port(), free_port()
    await endpoint(world, nobodys)
    async with server() as target:
        ports = [{"port": port, "targetPort": target}]
        await world.create(SERVICES, "web", spec={"selector": {"app": "web"}, "ports": ports})
        await world.there("services/default/web")
        address = str(world.objects["services/default/web"]["spec"]["clusterIP"])
        assert await answered(world, address, port) == "HELLO"

    async with server() as target:
        await world.patch(SERVICES, "web", {"spec": {"ports": [{"port": port, "targetPort": target}]}})

        async with asyncio.timeout(60):
            while not await answered(world, address, port):
                await world.clock.sleep(0.01)


@linux_only
async def test_the_port_of_a_service_without_pods_is_released(world: EmbeddedCluster) -> None:
    world.start(ServiceProxy(world.client, world.clock, world.jitter))
    async with server() as target:
        port = free_port()
        address = await service(world, port, target)
        await answered(world, address, port)

    await world.patch(ENDPOINTS, "web", {"subsets": []})

    async with asyncio.timeout(60):
        while True:
            try:
                async with server("0.0.0.0", port):  # noqa: S104 - as programs do
                    break
            except OSError:
                await world.clock.sleep(0.01)


@linux_only
async def test_a_program_that_listens_on_the_service_port_on_all_addresses_answers_itself(
    world: EmbeddedCluster,
) -> None:
    world.start(ServiceProxy(world.client, world.clock, world.jitter))
    port = free_port()
    address = await service(world, port, port)

    async with server("0.0.0.0", port):  # noqa: S104 - as programs do
        assert await answered(world, address, port) == "HELLO"


async def test_a_translated_service_port_leads_to_a_program_on_its_target_port(world: EmbeddedCluster) -> None:
    world.start(ServiceProxy(world.client, world.clock, world.jitter))
    name_leads_to = free_port()
    async with server() as target:
        ports = [{"port": free_port(), "targetPort": target}]
        await world.create(SERVICES, "web", spec={"selector": {"app": "web"}, "ports": ports})
        await endpoint(world, name_leads_to)

        assert await answered(world, "127.0.0.1", name_leads_to) == "HELLO"


@linux_only
async def test_a_port_used_by_another_program_is_reported_once(world: EmbeddedCluster) -> None:
    port = free_port()
    async with server() as target:
        await world.create(SERVICES, "web", spec={"ports": [{"port": port, "targetPort": target}]})
        await world.there("services/default/web")
        address = world.objects["services/default/web"]["spec"]["clusterIP"]
        async with server(address, port):
            world.start(ServiceProxy(world.client, world.clock, world.jitter))
            await endpoint(world, target)
            await world.until(lambda: any(what.startswith("events/") for what in world.objects))

    (event,) = [thing for what, thing in world.objects.items() if what.startswith("events/")]
    assert event["reason"] == "AddressNotServed"
    assert f"cannot listen on {address}:{port}: another program uses the port" in event["message"]


async def test_the_service_kubernetes_leads_to_the_api_server_and_is_recreated(world: EmbeddedCluster) -> None:
    world.start(KubernetesServiceController(world.client, 6443, world.clock, world.jitter))
    await world.there("services/default/kubernetes", "endpoints/default/kubernetes")
    address = world.objects["services/default/kubernetes"]["spec"]["clusterIP"]
    await world.delete(SERVICES, "kubernetes")
    await world.gone("services/default/kubernetes")

    await world.there("services/default/kubernetes")

    assert world.objects["services/default/kubernetes"]["spec"]["clusterIP"] == address
    ports = world.objects["endpoints/default/kubernetes"]["subsets"][0]["ports"]
    assert [(port["name"], port["port"]) for port in ports] == [("https", 6443)]


# ----------------------------------------------------------------------------------------------------------- addresses

PORTS = {"ports": [{"port": 80}]}


async def create_service(world: EmbeddedCluster, name: str, **spec: Any) -> dict[str, Any]:
    await world.create(SERVICES, name, spec={**PORTS, **spec})
    whole: dict[str, Any] = await world.client.get(SERVICES.with_model(dict), world.key(SERVICES, name))
    return dict(whole["spec"])


async def test_each_service_has_its_own_cluster_ip_and_headless_ones_have_none(world: EmbeddedCluster) -> None:
    addresses = [(await create_service(world, f"s{number}"))["clusterIP"] for number in range(20)]
    headless = await create_service(world, "headless", clusterIP="None")

    assert len(set(addresses)) == 20
    assert all(address.startswith("127.") for address in addresses)
    assert headless["clusterIPs"] == ["None"]


async def test_an_unavailable_cluster_ip_is_rejected(world: EmbeddedCluster) -> None:
    taken = (await create_service(world, "one"))["clusterIP"]

    with pytest.raises(Invalid, match="provided IP is already allocated"):
        await create_service(world, "two", clusterIP=taken)
    with pytest.raises(Invalid, match="not in the valid range"):
        await create_service(world, "three", clusterIP="10.96.0.10")
    with pytest.raises(Invalid, match="may not change once set"):
        await world.patch(SERVICES, "one", {"spec": {"clusterIP": "127.99.9.9"}})


async def test_node_ports_are_kept_until_the_type_changes(world: EmbeddedCluster) -> None:
    first = (await create_service(world, "one", type="NodePort"))["ports"][0]["nodePort"]
    await world.patch(SERVICES, "one", {"spec": {"ports": [{"port": 80, "targetPort": 8080}]}})
    kept = await world.client.get(SERVICES.with_model(dict), world.key(SERVICES, "one"))
    await world.patch(SERVICES, "one", {"spec": {"type": "ClusterIP"}})
    plain = await world.client.get(SERVICES.with_model(dict), world.key(SERVICES, "one"))

    assert 30000 <= first < 32768
    assert kept["spec"]["ports"][0]["nodePort"] == first
    assert "nodePort" not in plain["spec"]["ports"][0]
    assert plain["spec"]["clusterIP"] == kept["spec"]["clusterIP"]
