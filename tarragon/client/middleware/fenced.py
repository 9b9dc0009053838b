"""`Fenced`: the port for a leader. Each write asks the lease first, so one that froze and thawed changes nothing."""

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
"""No more than the client has connections: a write that passed the check must not queue for one after it."""


class Fenced(Passing):
    """Reads pass, writes raise LeaseLost unless we lead when they are sent."""

    def __init__(self, cluster: Cluster, lease: Lease) -> None:
        super().__init__(cluster)
        self._lease = lease
        self._turns = asyncio.Semaphore(WRITES_AT_ONCE)

    async def create(self, resource: Resource[T], body: Mapping[str, Any]) -> T:
        async with self._turns:
            self._lease.check()
            return await super().create(resource, body)

    async def patch(self, resource: Resource[T], key: Key, patch: Mapping[str, Any], *, subresource: str = "") -> T:
        async with self._turns:
            self._lease.check()
            return await super().patch(resource, key, patch, subresource=subresource)

    async def delete(self, resource: Resource[T], key: Key, options: DeleteOptions = PLAIN_DELETE) -> None:
        async with self._turns:
            self._lease.check()
            await super().delete(resource, key, options)
