"""Allocates the cluster IPs of services, from the loopback range, and their node ports.

On Linux all of 127.0.0.0/8 is this machine, so a process can listen on any address of it without privileges or setup.
A service's address is derived from its name and from the path of the cluster's store: it is mostly the same each time,
and rarely that of another cluster on this machine.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tarragon.kube.codec import decode
from tarragon.localcluster.api import errors
from tarragon.localcluster.kinds.resource import ServedKind
from tarragon.localcluster.schema.field_errors import FieldError, invalid_value
from tarragon.localcluster.storage.store import Store
from tarragon.localcluster.storage.watch_cache import StoredObject

Json = dict[str, Any]

SERVICES = "services"
SERVICE_RANGE = ipaddress.IPv4Network("127.96.0.0/12")
NODE_PORTS = range(30000, 32768)
KUBERNETES = "default/kubernetes"
"""The service through which pods reach the API server."""
_NODE_PORT_TYPES = frozenset({"NodePort", "LoadBalancer"})


def preferred_address(store: Path, service: str, attempt: int = 0) -> str:
    """The preferred address of the service `namespace/name`; later attempts give alternatives."""
    number = _hashed(f"{store.resolve()}|{service}|{attempt}")
    return str(SERVICE_RANGE[256 + number % (SERVICE_RANGE.num_addresses - 512)])


class ServiceAllocator:
    """Allocates while a write is decided; writes are decided one at a time, so no lock is needed."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def allocate(self, served: ServedKind, service: Json, old: Mapping[str, Any] | None = None) -> None:
        """Allocate, in place, what a new or changed service lacks. Raises Invalid if a requested value is unavailable.

        Headless services, of which jobs have thousands, cost nothing.
        """
        if served.full_name != SERVICES:
            return
        spec, before = service.setdefault("spec", {}), (old or {}).get("spec") or {}
        kind = spec.get("type") or "ClusterIP"
        if kind == "ExternalName":
            return
        if spec.get("clusterIP", "") != "None":
            faults = [*self._allocate_address(service, before)]
            if kind in _NODE_PORT_TYPES:
                faults += self._allocate_ports(service, before)
            if faults:
                raise errors.invalid(served, service["metadata"].get("name") or "", faults)

    def _allocate_address(self, service: Json, before: Mapping[str, Any]) -> Iterator[FieldError]:
        spec = service["spec"]
        wanted = spec.get("clusterIP") or before.get("clusterIP")
        if before.get("clusterIP") and before.get("type") != "ExternalName":
            return  # validation ensures that an allocated address stays
        taken = {stored.fields[0] for stored in self._others(service)}
        if not wanted:
            spec["clusterIP"] = self._free_address(service, taken)
        elif not _is_in_range(wanted):
            reason = f"the provided IP ({wanted}) is not in the valid range. The range of valid IPs is {SERVICE_RANGE}"
            yield _refused_address(wanted, reason)
        elif wanted in taken:
            yield _refused_address(wanted, "provided IP is already allocated")

    def _free_address(self, service: Json, taken: set[str]) -> str:
        attempt = 0
        while (address := preferred_address(self._store.path, _key(service), attempt)) in taken:
            attempt += 1
        return address

    def _allocate_ports(self, service: Json, before: Mapping[str, Any]) -> Iterator[FieldError]:
        """A port keeps its number, even if an update omits it."""
        previous = {_port_identity(port): port.get("nodePort") for port in before.get("ports") or ()}
        own = set(filter(None, previous.values()))
        ports = service["spec"].get("ports") or ()
        for port in ports:
            if not port.get("nodePort") and previous.get(_port_identity(port)):
                port["nodePort"] = previous[_port_identity(port)]
        taken = {number for stored in self._others(service) for number in _node_ports(stored)} if ports else set()
        for index, port in enumerate(ports):
            wanted = port.get("nodePort")
            if not wanted:
                port["nodePort"] = self._free_port(service, port, taken)
            elif wanted not in NODE_PORTS:
                words = f"provided port is not in the valid range. The range of valid ports is {_range(NODE_PORTS)}"
                yield invalid_value(f"spec.ports[{index}].nodePort", wanted, words)
            elif wanted in taken and wanted not in own:
                yield invalid_value(f"spec.ports[{index}].nodePort", wanted, "provided port is already allocated")
            taken.add(port["nodePort"])

    def _free_port(self, service: Json, port: Json, taken: set[int]) -> int:
        start = _hashed(f"{self._store.path.resolve()}|{_key(service)}|{port.get('port')}")
        candidates = (NODE_PORTS[(start + step) % len(NODE_PORTS)] for step in range(len(NODE_PORTS)))
        found = next((number for number in candidates if number not in taken), None)
        if found is None:
            raise errors.internal("failed to allocate a nodePort: range is full")
        return found

    def _others(self, service: Json) -> Iterator[StoredObject]:
        key = (service["metadata"].get("namespace", ""), service["metadata"].get("name", ""))
        return (stored for stored in self._store.pending_states(SERVICES) if stored.key != key)


def _key(service: Json) -> str:
    return f"{service['metadata'].get('namespace')}/{service['metadata'].get('name')}"


def _refused_address(wanted: str, reason: str) -> FieldError:
    return invalid_value("spec.clusterIPs", [wanted], f"failed to allocate IP {wanted}: {reason}")


def _is_in_range(text: str) -> bool:
    try:
        return ipaddress.IPv4Address(text) in SERVICE_RANGE
    except ValueError:
        return False


def _node_ports(stored: StoredObject) -> list[int]:
    if stored.fields[1] not in _NODE_PORT_TYPES:
        return []
    ports = (decode(stored.body, dict).get("spec") or {}).get("ports") or ()
    return [port["nodePort"] for port in ports if port.get("nodePort")]


def _port_identity(port: Mapping[str, Any]) -> tuple[str, int]:
    return (port.get("protocol") or "TCP", port.get("port", 0))


def _hashed(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6])


def _range(numbers: range) -> str:
    return f"{numbers.start}-{numbers.stop - 1}"
