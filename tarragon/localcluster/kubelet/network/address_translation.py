"""At which port of this machine a container's port is found: its own number, or the one that a Service's name became.

A program that reads its address from its environment (TF_CONFIG) listens where the translation sent it, one that has
a number of its own listens there. Which of the two it was is seen from the sockets of the container's processes.
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
from tarragon.localcluster.kubelet.network.ports import PortBook
from tarragon.localcluster.kubelet.network.translate import Address
from tarragon.localcluster.kubelet.shim.shim_client import state_of

_LISTENS = "0A"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One run of a container; `folder` is that of its shim."""

    pod: Pod
    container: Container
    number: int
    folder: Path


class NoSuchPort(Exception):
    """The container has no port of this name."""


class Reach:
    """`node` is the name under which the node's pods use ports."""

    def __init__(self, node: str, ports: PortBook, services: Mapping[Key, Service]) -> None:
        self._node = node
        self._ports = ports
        self._services = services

    def port(self, place: Place, wanted: int | str) -> int:
        """Raises NoSuchPort."""
        number = _number(place.container, wanted)
        translated = list(self._translated(place.pod, number))
        if not translated:
            return number
        listening = listening_ports(place.folder)
        return next((port for port in (*translated, number) if port in listening), translated[0])

    def _translated(self, pod: Pod, number: int) -> Iterator[int]:
        """What the addresses of this pod's own port have become, those that it has in its own environment."""
        user = f"{self._node}/{pod.metadata.uid}"
        for address, local in self._ports.used_by(user).items():
            service = self._services.get(Key(address.namespace, address.name.rpartition(".")[2]))
            if service is not None and leads_to(service, address, pod, number):
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


def leads_to(service: Service, address: Address, pod: Pod, number: int) -> bool:
    selector, host = service.spec.selector, address.name.rpartition(".")[0]
    if address.namespace != pod.metadata.namespace or not selector:
        return False
    if host and host != (pod.spec.hostname or pod.metadata.name):
        return False
    if not selector.items() <= pod.metadata.labels.items():
        return False
    named = {port.name: port.container_port for each in pod.spec.containers for port in each.ports if port.name}
    targets = [port.target_port or port.port for port in service.spec.ports if port.port == address.port]
    return number in [named.get(target) if isinstance(target, str) else target for target in targets]


def listening_ports(folder: Path) -> frozenset[int]:
    """TCP ports on which processes of the container wait for connections. Empty where the system does not tell."""
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
    """Ports and inodes."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == _LISTENS:
                yield int(fields[1].rpartition(":")[2], 16), fields[9]
