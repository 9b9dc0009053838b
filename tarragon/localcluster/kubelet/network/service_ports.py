"""Finds the addresses of Services in what a pod was given, and allocates a local port for each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from tarragon.client.errors import NotFound
from tarragon.client.port import Client
from tarragon.kube.core import SERVICES, Service
from tarragon.kube.meta import Key
from tarragon.localcluster.kubelet.base.spec import Pod
from tarragon.localcluster.kubelet.network.address_translation import (
    PortLookup,
    ServiceAddress,
    find_address_pairs,
    find_addresses,
    localize_address_pairs,
)
from tarragon.localcluster.kubelet.network.ports import PortAllocator

LAST_SMALL_NUMBER = 1023
"""The last number behind a full name and a colon that may be something else than a port.

Host files of MPICH and Intel MPI have lines such as `pi-worker-0.pi.default.svc:4`, for a host with four slots.
"""


class ServicePorts:
    """The local ports of the Service addresses that the pods of a node mention. `node` is the name of the node."""

    def __init__(self, node: str, cluster: Client, ports: PortAllocator) -> None:
        self._node = node
        self._cluster = cluster
        self._ports = ports

    async def of_texts(self, pod: Pod, texts: Iterable[str]) -> PortLookup:
        """Allocate local ports for all addresses in these texts; return their lookup."""
        found = set().union(*map(find_addresses, texts))
        services = await self._services(pod, (address for address in found if not _is_certain(address)))
        return self._allocate(pod, [address for address in found if _is_address(address, services(address))])

    async def localize_pairs(self, pod: Pod, variables: Mapping[str, str]) -> Mapping[str, str]:
        """The variables of a container, with local addresses in pairs such as MASTER_ADDR and MASTER_PORT."""
        pairs = find_address_pairs(variables)
        if not pairs:
            return variables
        found = {pair.address for pair in pairs}
        services = await self._services(pod, (address for address in found if not address.namespace))
        lookup = self._allocate(pod, [address for address in found if _is_address_of_pair(address, services(address))])
        return localize_address_pairs(variables, pairs, lookup)

    def _allocate(self, pod: Pod, addresses: Iterable[ServiceAddress]) -> PortLookup:
        full_names = {address: _qualified(address, pod) for address in addresses}
        local = self._ports.allocate(full_names.values(), f"{self._node}/{pod.metadata.uid}")

        def lookup(address: ServiceAddress) -> int | None:
            return local.get(full_names[address]) if address in full_names else None

        return lookup

    async def _services(
        self, pod: Pod, addresses: Iterable[ServiceAddress]
    ) -> Callable[[ServiceAddress], Service | None]:
        """Read the Services of these addresses, each once: a host file has a line for each pod behind one.

        Reads the API, as a cache may lack a Service created just before the pod.
        """
        found = {key: await self._service(key) for key in {_key(address, pod) for address in addresses}}
        return lambda address: found.get(_key(address, pod))

    async def _service(self, key: Key) -> Service | None:
        try:
            return await self._cluster.get(SERVICES, key)
        except NotFound:
            return None


def _is_certain(address: ServiceAddress) -> bool:
    """Whether this is an address without a look at its Service, which may come later.

    A small number behind the full name of a pod is likelier a number of slots.
    """
    return bool(address.namespace) and address.port > LAST_SMALL_NUMBER


def _is_address(address: ServiceAddress, service: Service | None) -> bool:
    if _is_certain(address):
        return True
    if service is None:
        return bool(address.namespace) and address.name == address.service
    return _has_port(service, address)


def _is_address_of_pair(address: ServiceAddress, service: Service | None) -> bool:
    """Whether a host and a port are an address. The names of a headless Service lead to every port of its pods."""
    if address.namespace:
        return True
    return service is not None and (service.spec.is_headless or _has_port(service, address))


def _key(address: ServiceAddress, pod: Pod) -> Key:
    return Key(_qualified(address, pod).namespace, address.service)


def _qualified(address: ServiceAddress, pod: Pod) -> ServiceAddress:
    return replace(address, namespace=address.namespace or pod.metadata.namespace)


def _has_port(service: Service, address: ServiceAddress) -> bool:
    return any(port.port == address.port for port in service.spec.ports)
