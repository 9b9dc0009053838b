"""Finds the local port of a container's port: the same number, or the port that a Service address was translated to.

A program that reads its address from its environment (TF_CONFIG) listens on the translated port; one with a fixed port
listens on that number. The sockets of the container's processes show which of the two applies.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tarragon.kube.core import Service
from tarragon.kube.meta import Key
from tarragon.localcluster.kubelet.base import processes
from tarragon.localcluster.kubelet.base.spec import Container, Pod
from tarragon.localcluster.kubelet.network.address_translation import ServiceAddress
from tarragon.localcluster.kubelet.network.ports import PortAllocator
from tarragon.localcluster.kubelet.shim.shim_client import state_of

_LISTENING = "0A"
"""The state TCP_LISTEN in /proc/net/tcp."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """One run of a container; `folder` is its run folder."""

    pod: Pod
    container: Container
    number: int
    folder: Path


class NoSuchPort(Exception):
    """The container has no port with this name."""


class ContainerPorts:
    """Finds the local ports of a node's containers. `node` is the node's name in the users of port allocations."""

    def __init__(self, node: str, ports: PortAllocator, services: Mapping[Key, Service]) -> None:
        self._node = node
        self._ports = ports
        self._services = services

    def local_port(self, place: RunContext, wanted: int | str) -> int:
        """The local port for a port number or name of the container. Raises NoSuchPort."""
        number = _number(place.container, wanted)
        translated = list(self._translated(place.pod, number))
        if not translated:
            return number
        listening = listening_ports(place.folder)
        return next((port for port in (*translated, number) if port in listening), translated[0])

    def _translated(self, pod: Pod, number: int) -> Iterator[int]:
        """The local ports of this port's Service addresses, as far as the pod's environment mentions them."""
        user = f"{self._node}/{pod.metadata.uid}"
        for address, local in self._ports.used_by(user).items():
            service = self._services.get(Key(address.namespace, address.service))
            if service is not None and routes_to(service, address, pod, number):
                yield local


def _number(container: Container, wanted: int | str) -> int:
    if isinstance(wanted, int):
        return wanted
    if wanted.isdigit():
        return int(wanted)
    for port in container.ports:
        if port.name == wanted:
            return port.container_port
    raise NoSuchPort(f"couldn't find port: {wanted}")


def routes_to(service: Service, address: ServiceAddress, pod: Pod, number: int) -> bool:
    selector, host = service.spec.selector, address.name.rpartition(".")[0]
    if address.namespace != pod.metadata.namespace or not selector:
        return False
    if host and host != (pod.spec.hostname or pod.metadata.name):
        return False
    if not selector.items() <= pod.metadata.labels.items():
        return False
    named = {port.name: port.container_port for each in pod.spec.containers for port in each.ports if port.name}
    targets = [port.target_port or port.port for port in service.spec.ports if port.port == address.port]
    if not targets and service.spec.is_headless:
        targets = [address.port]
    return number in [named.get(target) if isinstance(target, str) else target for target in targets]


def listening_ports(folder: Path) -> frozenset[int]:
    """The TCP ports on which the container's processes listen. Empty on systems without /proc."""
    state = state_of(folder)
    if state is None or state.shim is None:
        return frozenset()
    sockets = {inode for pid in processes.descendants(state.shim.pid) for inode in _sockets(pid)}
    return frozenset(port for port, inode in _listeners() if inode in sockets)


def _sockets(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):  # ended meanwhile
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            target = str(descriptor.readlink())
            if target.startswith("socket:["):
                yield target[len("socket:[") : -1]


def _listeners() -> Iterator[tuple[int, str]]:
    """Ports and inodes of all listening TCP sockets."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == _LISTENING:
                yield int(fields[1].rpartition(":")[2], 16), fields[9]
