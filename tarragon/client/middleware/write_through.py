"""`WriteThroughClient`: a client that writes through to caches, which see a write before the watch delivers it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import msgspec

from tarragon.client.errors import unavailable
from tarragon.client.middleware.delegating import DelegatingClient
from tarragon.client.port import Client
from tarragon.kube.codec import decode
from tarragon.kube.meta import Key, Resource

T = TypeVar("T")


class WriteObserver(Protocol):
    """Receives the written objects, with the full name of their kind."""

    def expect_create(self, kind: str, body: Mapping[str, object]) -> AbstractContextManager[None]:
        """A context manager around the request that creates this object and the `store_written` that follows."""

    def store_written(self, kind: str, found: bytes) -> None:
        """Take in the complete object that the server returned for a write."""


class WriteThroughClient(DelegatingClient):
    """Passes the objects returned by writes to a learner. Retries of one request are reported once."""

    def __init__(self, cluster: Client, learner: WriteObserver) -> None:
        super().__init__(cluster)
        self._learner = learner

    async def create(self, resource: Resource[T], body: Mapping[str, Any]) -> T:
        with self._learner.expect_create(resource.full_name, body):
            return self._learn(resource, await super().create(resource.with_model(msgspec.Raw), body))

    async def patch(self, resource: Resource[T], key: Key, patch: Mapping[str, Any], *, subresource: str = "") -> T:
        answer = await super().patch(resource.with_model(msgspec.Raw), key, patch, subresource=subresource)
        return self._learn(resource, answer)

    def _learn(self, resource: Resource[T], answer: msgspec.Raw) -> T:
        try:
            read = decode(bytes(answer), resource.model)
            self._learner.store_written(resource.full_name, bytes(answer))
        except msgspec.MsgspecError as error:
            raise unavailable(f"the response of the API server can't be decoded: {error}") from error
        return read
