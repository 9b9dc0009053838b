"""`DelegatingClient`: the base class of clients that wrap another client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeVar

from tarragon.client.port import (
    ALL_OBJECTS,
    DEFAULT_DELETE,
    DEFAULT_LOG,
    Client,
    DeleteOptions,
    LogOptions,
    ObjectList,
    Selector,
    WatchEvent,
)
from tarragon.kube.meta import Key, Resource

T = TypeVar("T")


class DelegatingClient:
    """Delegates every call unchanged. A subclass overrides the calls that it changes."""

    def __init__(self, cluster: Client) -> None:
        self._cluster = cluster

    async def get(self, resource: Resource[T], key: Key) -> T:
        return await self._cluster.get(resource, key)

    async def list(self, resource: Resource[T], selection: Selector = ALL_OBJECTS) -> ObjectList[T]:
        return await self._cluster.list(resource, selection)

    def watch(self, resource: Resource[T], selection: Selector, since: str) -> AsyncIterator[WatchEvent[T]]:
        return self._cluster.watch(resource, selection, since)

    def stream_list(self, resource: Resource[T], selection: Selector) -> AsyncIterator[WatchEvent[T]] | None:
        return self._cluster.stream_list(resource, selection)

    async def create(self, resource: Resource[T], body: Mapping[str, Any]) -> T:
        return await self._cluster.create(resource, body)

    async def patch(self, resource: Resource[T], key: Key, patch: Mapping[str, Any], *, subresource: str = "") -> T:
        return await self._cluster.patch(resource, key, patch, subresource=subresource)

    async def delete(self, resource: Resource[T], key: Key, options: DeleteOptions = DEFAULT_DELETE) -> None:
        await self._cluster.delete(resource, key, options)

    def pod_log(self, key: Key, options: LogOptions = DEFAULT_LOG) -> AsyncIterator[bytes]:
        return self._cluster.pod_log(key, options)
