"""`Learning`: the port for who also watches. What the server answers to a write is known before a watch brings it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import msgspec

from tarragon.client.errors import unavailable
from tarragon.client.middleware.middleware import Passing
from tarragon.client.port import Cluster
from tarragon.kube.codec import decode
from tarragon.kube.meta import Key, Resource

T = TypeVar("T")


class Learner(Protocol):
    """Kinds are told by their full names."""

    def making(self, kind: str, body: Mapping[str, object]) -> AbstractContextManager[None]:
        """Around a request to make this object, and what is learnt from the answer."""

    def learn(self, kind: str, found: bytes) -> None:
        """The server has answered a write with this object, which is whole."""


class Learning(Passing):
    """Repeated requests are one to whoever learns of them."""

    def __init__(self, cluster: Cluster, learner: Learner) -> None:
        super().__init__(cluster)
        self._learner = learner

    async def create(self, resource: Resource[T], body: Mapping[str, Any]) -> T:
        with self._learner.making(resource.full_name, body):
            return self._told(resource, await super().create(resource.reading(msgspec.Raw), body))

    async def patch(self, resource: Resource[T], key: Key, patch: Mapping[str, Any], *, subresource: str = "") -> T:
        answer = await super().patch(resource.reading(msgspec.Raw), key, patch, subresource=subresource)
        return self._told(resource, answer)

    def _told(self, resource: Resource[T], answer: msgspec.Raw) -> T:
        try:
            read = decode(bytes(answer), resource.model)
            self._learner.learn(resource.full_name, bytes(answer))
        except msgspec.MsgspecError as error:
            raise unavailable(f"the API server answered with what none says: {error}") from error
        return read
