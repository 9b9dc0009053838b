"""`Fenced`: the port for a leader. Each write asks the lease first, so one that froze and thawed changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeVar

from tarragon.cluster.lease import Lease
from tarragon.cluster.port import (
    EVERYTHING,
    Cluster,
    DeleteOptions,
    Listing,
    LogOptions,
    Selection,
    WatchEvent,
)
from tarragon.kube.meta import Key, Resource

T = TypeVar("T")

WRITES_AT_ONCE = 32
"""No more than the client has connections: a write that passed the check must not queue for one after it."""

_PLAIN_DELETE = DeleteOptions()
_WHOLE_LOG = LogOptions()


class Fenced:
    """Reads pass, writes raise LeaseLost unless we lead when they are sent."""

    def __init__(self, cluster: Cluster, lease: Lease) -> None:
        self._cluster = cluster
        self._lease = lease
        self._turns = asyncio.Semaphore(WRITES_AT_ONCE)

    async def get(self, resource: Resource[T], key: Key) -> T:
        return await self._cluster.get(resource, key)

    async def list(self, resource: Resource[T], selection: Selection = EVERYTHING) -> Listing[T]:
        return await self._cluster.list(resource, selection)

    def watch(self, resource: Resource[T], selection: Selection, since: str) -> AsyncIterator[WatchEvent[T]]:
        return self._cluster.watch(resource, selection, since)

    async def create(self, resource: Resource[T], body: Mapping[str, Any]) -> T:
        async with self._turns:
            self._lease.check()
            return await self._cluster.create(resource, body)

    async def patch(self, resource: Resource[T], key: Key, patch: Mapping[str, Any], *, subresource: str = "") -> T:
        async with self._turns:
            self._lease.check()
            return await self._cluster.patch(resource, key, patch, subresource=subresource)

    async def delete(self, resource: Resource[T], key: Key, options: DeleteOptions = _PLAIN_DELETE) -> None:
        async with self._turns:
            self._lease.check()
            await self._cluster.delete(resource, key, options)

    def pod_log(self, key: Key, options: LogOptions = _WHOLE_LOG) -> AsyncIterator[bytes]:
        return self._cluster.pod_log(key, options)
