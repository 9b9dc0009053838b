"""Allocates a local port for each Service address that a pod mentions, and frees ports that are no longer needed.

An allocation is shared by all pods of a home that mention the address, on all its nodes, and lasts as long as one of
them lives, as they have the port in their environment. Then it is idle. An idle allocation is kept, so that a job whose
pods are all recreated keeps its ports, until its Service is deleted, there are more than IDLE_LIMIT (the longest idle
are freed first), or another program has taken the port.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from tarragon.base.clock import Clock
from tarragon.base.errors import TarragonError
from tarragon.localcluster.home.home import create_private_folder
from tarragon.localcluster.kubelet.base.files import read_json, unlock, write_json
from tarragon.localcluster.kubelet.network.address_translation import ServiceAddress
from tarragon.localcluster.kubelet.network.port_claims import PortClaims, candidate_ports, is_free

IDLE_LIMIT = 1000
ALLOCATIONS_FILE = "ports.json"


class PortAllocation(msgspec.Struct, frozen=True, kw_only=True):
    """The local port of an address. `users` are pods as `node/uid`.

    `idle_since`, in seconds since 1970, is valid while there are no users.
    """

    namespace: str
    name: str
    port: int
    local: int
    users: tuple[str, ...] = ()
    idle_since: float = 0.0

    @property
    def address(self) -> ServiceAddress:
        return ServiceAddress(namespace=self.namespace, name=self.name, port=self.port)


Allocations = dict[ServiceAddress, PortAllocation]


def allocated_ports(folder: Path) -> dict[ServiceAddress, int]:
    """The local ports that a home has allocated; readable while no kubelet runs."""
    return {entry.address: entry.local for entry in _read(folder).values()}


def _read(folder: Path) -> Allocations:
    entries = read_json(folder / ALLOCATIONS_FILE, list[PortAllocation]) or []
    return {entry.address: entry for entry in entries}


def _local_ports(book: Allocations) -> set[int]:
    return {entry.local for entry in book.values()}


def _holds(folder: Path, port: int) -> bool:
    return any(entry.local == port for entry in _read(folder).values())


class PortAllocator:
    """The port allocations of one home, in `folder`, which all its kubelets share, even across processes."""

    def __init__(self, folder: Path, registry: Path, clock: Clock) -> None:
        create_private_folder(folder)
        self._folder = folder.resolve()
        self._clock = clock
        self._claims = PortClaims(registry, self._folder, _holds)

    def close(self) -> None:
        self._claims.close()

    def allocate(self, addresses: Iterable[ServiceAddress], user: str) -> Mapping[ServiceAddress, int]:
        """Allocate a local port for each address, used by `user`. Raises TarragonError when no port is left."""
        requested = sorted(set(addresses))
        if not requested:
            return {}
        with self._open() as book:
            for address in requested:
                entry = self._usable(book.get(address)) or self._allocate(address, book)
                book[address] = replace(entry, users=tuple(sorted({*entry.users, user})))
            return {address: book[address].local for address in requested}

    def allocations(self) -> Mapping[ServiceAddress, int]:
        return allocated_ports(self._folder)

    def used_by(self, user: str) -> Mapping[ServiceAddress, int]:
        """The addresses that this pod's environment mentions, and their local ports."""
        return {entry.address: entry.local for entry in _read(self._folder).values() if user in entry.users}

    def release(self, user: str) -> None:
        """Remove a pod from the users of all its allocations."""
        self.retain_users(lambda other: other != user)

    def retain_users(self, is_alive: Callable[[str], bool]) -> None:
        with self._open() as book:
            now = self._clock.now().timestamp()
            for address, entry in book.items():
                alive = tuple(user for user in entry.users if is_alive(user))
                if alive != entry.users:
                    book[address] = replace(entry, users=alive, idle_since=now)

    def free_idle(self, is_service: Callable[[str, str], bool]) -> None:
        """Free idle allocations whose Service (by namespace and name) does not exist, and those beyond IDLE_LIMIT."""
        with self._open() as book:
            idle = sorted((e for e in book.values() if not e.users), key=lambda entry: entry.idle_since)
            excess = {entry.address for entry in idle[: max(0, len(idle) - IDLE_LIMIT)]}
            for entry in idle:
                if entry.address in excess or not is_service(entry.namespace, entry.address.service):
                    del book[entry.address]

    def renew_claims(self) -> None:
        """Renew the claims of all allocations, and release others; to be called now and then."""
        with self._claims.locked():
            allocated = _local_ports(_read(self._folder))
            for port in allocated:
                self._claims.renew(port)
            # A killed kubelet may have left claims that it had not recorded yet, or not released yet.
            for port in self._claims.ports() - allocated:
                self._claims.release(port)

    def _usable(self, entry: PortAllocation | None) -> PortAllocation | None:
        """The allocation, unless it is idle and another program listens on its port."""
        return entry if entry is None or entry.users or is_free(entry.local) else None

    def _allocate(self, address: ServiceAddress, book: Allocations) -> PortAllocation:
        port = self._claim_port(address, _local_ports(book))
        if port is None:
            for idle in [entry.address for entry in book.values() if not entry.users]:
                del book[idle]
            port = self._claim_port(address, _local_ports(book))
        if port is None:
            raise TarragonError(
                f"no port is left for {address.name}.{address.namespace}.svc:{address.port}",
                why=f"all ports from {candidate_ports()[0]} to {candidate_ports()[-1]} are in use or claimed on this "
                "machine",
                remedy="end jobs that run here; `tarragon list` shows yours",
            )
        return PortAllocation(namespace=address.namespace, name=address.name, port=address.port, local=port)

    def _claim_port(self, address: ServiceAddress, taken: Collection[int]) -> int | None:
        """Claim a free port. A hash of address and home picks the first candidate, so that it is mostly the same."""
        ports = candidate_ports()
        seed = f"{self._folder}|{address.namespace}/{address.name}:{address.port}"
        start = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4]) % len(ports)
        rotated = itertools.chain(itertools.islice(ports, start, None), itertools.islice(ports, start))
        return next((port for port in rotated if port not in taken and self._claims.claim(port)), None)

    @contextlib.contextmanager
    def _open(self) -> Iterator[Allocations]:
        """The allocations, for changes under lock; written back on success if they changed.

        Claims are released after that: an allocation without a claim could lose its port to another home.
        """
        with self._claims.locked(), self._own_lock():
            before = _read(self._folder)
            book = dict(before)
            yield book
            if book != before:
                write_json(self._folder / ALLOCATIONS_FILE, list(book.values()))
                for port in _local_ports(before) - _local_ports(book):
                    self._claims.release(port)

    @contextlib.contextmanager
    def _own_lock(self) -> Iterator[None]:
        """Hold the home's lock, as two users may share a home, such as root and its owner."""
        descriptor = os.open(self._folder / "ports.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            unlock(descriptor)
