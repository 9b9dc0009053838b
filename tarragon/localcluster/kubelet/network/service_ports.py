"""Finds the addresses of Services in what a pod was given, and allocates a local port for each of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
        return self._allocate(pod, [address for address in found if await self._is_address(pod, address)])

    async def localize_pairs(self, pod: Pod, variables: Mapping[str, str]) -> Mapping[str, str]:
        """The variables of a container, with local addresses in pairs such as MASTER_ADDR and MASTER_PORT."""
        pairs = find_address_pairs(variables)
        if not pairs:
            return variables
        found = {pair.address for pair in pairs}
        lookup = self._allocate(pod, [address for address in found if await self._is_address_of_pair(pod, address)])
        return localize_address_pairs(variables, pairs, lookup)

    def _allocate(self, pod: Pod, addresses: Iterable[ServiceAddress]) -> PortLookup:
        full_names = {address: _qualified(address, pod) for address in addresses}
        local = self._ports.allocate(full_names.values(), f"{self._node}/{pod.metadata.uid}")

        def lookup(address: ServiceAddress) -> int | None:
            return local.get(full_names[address]) if address in full_names else None

        return lookup

    async def _is_address(self, pod: Pod, address: ServiceAddress) -> bool:
        """Whether `name:number` is an address. A full name counts without its Service, which may come later.

        But a small number behind the host name of a pod is likelier a number of slots.
        """
        if address.namespace and address.port > LAST_SMALL_NUMBER:
            return True
        service = await self._service(pod, address)
        if service is None:
            return bool(address.namespace) and address.name == address.service
        return _has_port(service, address)

    async def _is_address_of_pair(self, pod: Pod, address: ServiceAddress) -> bool:
        """Whether a host and a port are an address. The names of a headless Service lead to every port of its pods."""
        if address.namespace:
            return True
        service = await self._service(pod, address)
        return service is not None and (service.spec.is_headless or _has_port(service, address))

    async def _service(self, pod: Pod, address: ServiceAddress) -> Service | None:
        """The address' Service. Reads the API, as a cache may lack a Service created just before the pod."""
        try:
            return await self._cluster.get(SERVICES, Key(_qualified(address, pod).namespace, address.service))
        except NotFound:
            return None


def _qualified(address: ServiceAddress, pod: Pod) -> ServiceAddress:
    return replace(address, namespace=address.namespace or pod.metadata.namespace)


def _has_port(service: Service, address: ServiceAddress) -> bool:
    return any(port.port == address.port for port in service.spec.ports)
