"""Checks periodically whether another training operator is running on the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import structlog

from tarragon.base.clock import Clock
from tarragon.client.errors import ApiError, Forbidden, NotFound
from tarragon.client.port import ALL_OBJECTS, Client, Selector
from tarragon.kube.meta import Resource
from tarragon.operator.coexistence.detection import (
    DEPLOYMENTS,
    ENDPOINTS_LOCKS,
    LEASE_LOCKS,
    LOCKS,
    ClusterState,
    LeaderElectionLock,
    detect_operators,
    operators_by_kind,
)

CHECK_SECONDS = 60.0
RETRY_SECONDS = 5.0
"""Seconds until a failed initial check is retried."""

T = TypeVar("T")
log = structlog.get_logger(__name__)


class CoexistenceWatcher:
    """Call `first_check` before any decision, then `run`, which never returns."""

    def __init__(self, cluster: Client, clock: Clock, on_change: Callable[[Mapping[str, str]], None]) -> None:
        """`on_change` gets the detected operators by kind when they change, and initially if there are any."""
        self._cluster = cluster
        self._clock = clock
        self._on_change = on_change
        self._previous = ClusterState()
        self._reported: Mapping[str, str] = {}
        self._unreadable: set[str] = set()

    async def first_check(self) -> None:
        """Wait for a first successful check: without it, Tarragon might create another operator's pods twice."""
        while not await self._check():
            await self._clock.sleep(RETRY_SECONDS)

    async def run(self) -> None:
        while True:
            await self._clock.sleep(CHECK_SECONDS)
            await self._check()

    async def _check(self) -> bool:
        """Check once. Returns False, and changes nothing, if a request failed."""
        try:
            found = await self._find()
        except ApiError as error:
            log.warning("cannot check for other operators", error=str(error))
            return False
        seen = detect_operators(found, self._previous, self._clock.now())
        self._previous = found
        operators = operators_by_kind(seen)
        if operators != self._reported:
            self._reported = operators
            self._on_change(operators)
        return True

    async def _find(self) -> ClusterState:
        leases, endpoints, deployments = await asyncio.gather(
            self._locks(LEASE_LOCKS), self._locks(ENDPOINTS_LOCKS), self._list(DEPLOYMENTS, ALL_OBJECTS)
        )
        return ClusterState(leases=leases, endpoints=endpoints, deployments=deployments)

    async def _locks(self, resource: Resource[LeaderElectionLock]) -> Sequence[LeaderElectionLock]:
        """List locks by name, because every node has a Lease and every service has Endpoints."""
        locks_by_name = await asyncio.gather(
            *(self._list(resource, Selector(field_selector=f"metadata.name={name}")) for name in LOCKS)
        )
        return [lock for locks in locks_by_name for lock in locks]

    async def _list(self, resource: Resource[T], selection: Selector) -> Sequence[T]:
        try:
            return (await self._cluster.list(resource, selection)).items
        except (Forbidden, NotFound) as error:
            if resource.plural not in self._unreadable:
                self._unreadable.add(resource.plural)
                log.warning("cannot detect other operators by this kind", kind=resource.kind, error=str(error))
            return []
