"""Checks periodically whether another training operator is running on the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import structlog

from tarragon.base.clock import Clock
from tarragon.client.errors import ApiError, Forbidden, NotFound
from tarragon.client.port import EVERYTHING, Cluster, Selection
from tarragon.kube.meta import Resource
from tarragon.operator.coexistence.rivals import (
    DEPLOYMENTS,
    ENDPOINTS_LOCKS,
    LEASE_LOCKS,
    LOCKS,
    Found,
    Lock,
    left_to,
    rivals,
)

LOOK_SECONDS = 60.0
AGAIN_SECONDS = 5.0
"""Seconds until a failed initial check is retried."""

T = TypeVar("T")
log = structlog.get_logger(__name__)


class Lookout:
    """Call `first` before any decision, then `run`, which never returns."""

    def __init__(self, cluster: Cluster, clock: Clock, on_change: Callable[[Mapping[str, str]], None]) -> None:
        """`on_change` gets the detected operators by kind when they change, and initially if there are any."""
        self._cluster = cluster
        self._clock = clock
        self._on_change = on_change
        self._previous = Found()
        self._reported: Mapping[str, str] = {}
        self._unreadable: set[str] = set()

    async def first(self) -> None:
        """Wait for a first successful check: without it, Tarragon might create another operator's pods twice."""
        while not await self._check():
            await self._clock.sleep(AGAIN_SECONDS)

    async def run(self) -> None:
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            await self._check()

    async def _check(self) -> bool:
        """Check once. Returns False, and changes nothing, if a request failed."""
        try:
            found = await self._find()
        except ApiError as error:
            log.warning("cannot check for other operators", error=str(error))
            return False
        seen = rivals(found, self._previous, self._clock.now())
        self._previous = found
        operators = left_to(seen)
        if operators != self._reported:
            self._reported = operators
            self._on_change(operators)
        return True

    async def _find(self) -> Found:
        leases, endpoints, deployments = await asyncio.gather(
            self._locks(LEASE_LOCKS), self._locks(ENDPOINTS_LOCKS), self._list(DEPLOYMENTS, EVERYTHING)
        )
        return Found(leases=leases, endpoints=endpoints, deployments=deployments)

    async def _locks(self, resource: Resource[Lock]) -> Sequence[Lock]:
        """List locks by name, because every node has a Lease and every service has Endpoints."""
        locks_by_name = await asyncio.gather(
            *(self._list(resource, Selection(fields=f"metadata.name={name}")) for name in LOCKS)
        )
        return [lock for locks in locks_by_name for lock in locks]

    async def _list(self, resource: Resource[T], selection: Selection) -> Sequence[T]:
        try:
            return (await self._cluster.list(resource, selection)).items
        except (Forbidden, NotFound) as error:
            if resource.plural not in self._unreadable:
                self._unreadable.add(resource.plural)
                log.warning("cannot detect other operators by this kind", kind=resource.kind, error=str(error))
            return []
