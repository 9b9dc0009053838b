"""`Fenced`: the client of a leader. Each write checks the lease first, so a process that was frozen writes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, TypeVar

from tarragon.client.leader_election import Lease
from tarragon.client.middleware.middleware import Passing
from tarragon.client.port import PLAIN_DELETE, Cluster, DeleteOptions
from tarragon.kube.meta import Key, Resource

T = TypeVar("T")

WRITES_AT_ONCE = 32
"""At most the number of connections of the client, so that no write queues for a connection after its check."""


class Fenced(Passing):
    """Passes reads through. A write raises LeaseLost unless this process is the leader when the write is sent."""

    def __init__(self, cluster: Cluster, lease: Lease) -> None:
        super().__init__(cluster)
        self._lease = lease
        self._slots = asyncio.Semaphore(WRITES_AT_ONCE)

    async def create(self, resource: Resource[T], body: Mapping[str, Any]) -> T:
        async with self._slots:
            self._lease.check()
            return await super().create(resource, body)

    async def patch(self, resource: Resource[T], key: Key, patch: Mapping[str, Any], *, subresource: str = "") -> T:
        async with self._slots:
            self._lease.check()
            return await super().patch(resource, key, patch, subresource=subresource)

    async def delete(self, resource: Resource[T], key: Key, options: DeleteOptions = PLAIN_DELETE) -> None:
        async with self._slots:
            self._lease.check()
            await super().delete(resource, key, options)
