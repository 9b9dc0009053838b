"""`Learning`: the port for who also watches. What the server answers to a write is known before a watch brings it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import msgspec

from tarragon.cluster.errors import unavailable
from tarragon.cluster.port import EVERYTHING, Cluster, DeleteOptions, Listing, LogOptions, Selection, WatchEvent
from tarragon.kube.codec import decode
from tarragon.kube.meta import Key, Resource

T = TypeVar("T")

_PLAIN_DELETE = DeleteOptions()
_WHOLE_LOG = LogOptions()


class Learner(Protocol):
    """Kinds are told by their full names."""

    def making(self, kind: str, body: Mapping[str, object]) -> AbstractContextManager[None]:
        """Around a request to make this object, and what is learnt from the answer."""

    def learn(self, kind: str, found: bytes) -> None:
        """The server has answered a write with this object, which is whole."""


class Learning:
    """Repeated requests are one to whoever learns of them."""

    def __init__(self, cluster: Cluster, learner: Learner) -> None:
        self._cluster = cluster
        self._learner = learner

    async def get(self, resource: Resource[T], key: Key) -> T:
        return await self._cluster.get(resource, key)

    async def list(self, resource: Resource[T], selection: Selection = EVERYTHING) -> Listing[T]:
        return await self._cluster.list(resource, selection)

    def watch(self, resource: Resource[T], selection: Selection, since: str) -> AsyncIterator[WatchEvent[T]]:
        return self._cluster.watch(resource, selection, since)

    async def create(self, resource: Resource[T], body: Mapping[str, Any]) -> T:
        with self._learner.making(resource.full_name, body):
            return self._told(resource, await self._cluster.create(resource.reading(msgspec.Raw), body))

    async def patch(self, resource: Resource[T], key: Key, patch: Mapping[str, Any], *, subresource: str = "") -> T:
        answer = await self._cluster.patch(resource.reading(msgspec.Raw), key, patch, subresource=subresource)
        return self._told(resource, answer)

    async def delete(self, resource: Resource[T], key: Key, options: DeleteOptions = _PLAIN_DELETE) -> None:
        await self._cluster.delete(resource, key, options)

    def pod_log(self, key: Key, options: LogOptions = _WHOLE_LOG) -> AsyncIterator[bytes]:
        return self._cluster.pod_log(key, options)

    def _told(self, resource: Resource[T], answer: msgspec.Raw) -> T:
        try:
            read = decode(bytes(answer), resource.model)
            self._learner.learn(resource.full_name, bytes(answer))
        except msgspec.MsgspecError as error:
            raise unavailable(f"the API server answered with what none says: {error}") from error
        return read
