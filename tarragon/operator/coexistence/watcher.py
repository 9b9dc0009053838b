"""Looks, now and then, whether another training operator is at work on the cluster."""

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
"""After a look that was not answered."""

T = TypeVar("T")
log = structlog.get_logger(__name__)


class Lookout:
    """`first` before anything is decided, then `run` for ever."""

    def __init__(self, cluster: Cluster, clock: Clock, tell: Callable[[Mapping[str, str]], None]) -> None:
        """`tell` hears, by kind, who keeps its jobs; whenever that changes, and at first if there is anybody."""
        self._cluster = cluster
        self._clock = clock
        self._tell = tell
        self._before = Found()
        self._told: Mapping[str, str] = {}
        self._blind: set[str] = set()

    async def first(self) -> None:
        """Return when a look was answered: to decide without would be to make every pod of theirs twice."""
        while not await self._look():
            await self._clock.sleep(AGAIN_SECONDS)

    async def run(self) -> None:
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            await self._look()

    async def _look(self) -> bool:
        """False, and everything stays as it was, when the server does not answer."""
        try:
            found = await self._found()
        except ApiError as error:
            log.warning("no look for other operators", error=str(error))
            return False
        seen = rivals(found, self._before, self._clock.now())
        self._before = found
        words = left_to(seen)
        if words != self._told:
            self._told = words
            self._tell(words)
        return True

    async def _found(self) -> Found:
        leases, endpoints, deployments = await asyncio.gather(
            self._locks(LEASE_LOCKS), self._locks(ENDPOINTS_LOCKS), self._all(DEPLOYMENTS, EVERYTHING)
        )
        return Found(leases=leases, endpoints=endpoints, deployments=deployments)

    async def _locks(self, resource: Resource[Lock]) -> Sequence[Lock]:
        """By name: every node has a Lease, every service its Endpoints."""
        each = await asyncio.gather(*(self._all(resource, Selection(fields=f"metadata.name={name}")) for name in LOCKS))
        return [lock for locks in each for lock in locks]

    async def _all(self, resource: Resource[T], selection: Selection) -> Sequence[T]:
        try:
            return (await self._cluster.list(resource, selection)).items
        except (Forbidden, NotFound) as error:
            if resource.plural not in self._blind:
                self._blind.add(resource.plural)
                log.warning("other operators can't be told by these", kind=resource.kind, error=str(error))
            return []
