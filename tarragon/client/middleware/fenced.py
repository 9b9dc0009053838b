"""`FencedClient`: the client of a leader. Each write checks the lease first, so a process that was frozen writes
nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, TypeVar

from tarragon.client.leader_election import LeaderElector
from tarragon.client.middleware.delegating import DelegatingClient
from tarragon.client.port import DEFAULT_DELETE, Client, DeleteOptions
from tarragon.kube.meta import Key, Resource

T = TypeVar("T")

MAX_CONCURRENT_WRITES = 32
"""At most the number of connections of the client, so that no write queues for a connection after its check."""


class FencedClient(DelegatingClient):
    """Passes reads through. A write raises LeaseLost unless this process is the leader when the write is sent."""

    def __init__(self, cluster: Client, lease: LeaderElector) -> None:
        super().__init__(cluster)
        self._lease = lease
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_WRITES)

    async def create(self, resource: Resource[T], body: Mapping[str, Any]) -> T:
        async with self._slots:
            self._lease.check()
            return await super().create(resource, body)

    async def patch(self, resource: Resource[T], key: Key, patch: Mapping[str, Any], *, subresource: str = "") -> T:
        async with self._slots:
            self._lease.check()
            return await super().patch(resource, key, patch, subresource=subresource)

    async def delete(self, resource: Resource[T], key: Key, options: DeleteOptions = DEFAULT_DELETE) -> None:
        async with self._slots:
            self._lease.check()
            await super().delete(resource, key, options)
