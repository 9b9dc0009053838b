"""`Expecting`: the port for who also watches. What the server answers to a write, its watches must bring soon."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeVar

from tarragon.cluster.port import EVERYTHING, Cluster, DeleteOptions, Listing, LogOptions, Selection, WatchEvent
from tarragon.kube.meta import Key, ObjectMeta, Resource

T = TypeVar("T")

_PLAIN_DELETE = DeleteOptions()
_WHOLE_LOG = LogOptions()


class Expecting:
    """`expect` is told kind (its full name), namespace and version of each object that the server has answered with."""

    def __init__(self, cluster: Cluster, expect: Callable[[str, str, int], None]) -> None:
        self._cluster = cluster
        self._expect = expect

    async def get(self, resource: Resource[T], key: Key) -> T:
        return self._told(resource, key.namespace, await self._cluster.get(resource, key))

    async def list(self, resource: Resource[T], selection: Selection = EVERYTHING) -> Listing[T]:
        return await self._cluster.list(resource, selection)

    def watch(self, resource: Resource[T], selection: Selection, since: str) -> AsyncIterator[WatchEvent[T]]:
        return self._cluster.watch(resource, selection, since)

    async def create(self, resource: Resource[T], body: Mapping[str, Any]) -> T:
        namespace = str((body.get("metadata") or {}).get("namespace") or "")
        return self._told(resource, namespace, await self._cluster.create(resource, body))

    async def patch(self, resource: Resource[T], key: Key, patch: Mapping[str, Any], *, subresource: str = "") -> T:
        answer = await self._cluster.patch(resource, key, patch, subresource=subresource)
        return self._told(resource, key.namespace, answer)

    async def delete(self, resource: Resource[T], key: Key, options: DeleteOptions = _PLAIN_DELETE) -> None:
        await self._cluster.delete(resource, key, options)

    def pod_log(self, key: Key, options: LogOptions = _WHOLE_LOG) -> AsyncIterator[bytes]:
        return self._cluster.pod_log(key, options)

    def _told(self, resource: Resource[T], namespace: str, answer: T) -> T:
        version = _version(answer)
        if version.isdecimal():
            self._expect(resource.full_name, namespace, int(version))
        return answer


def _version(answer: object) -> str:
    """Of an object as the caller wanted it: a Struct with metadata, or a dict."""
    if isinstance(answer, dict):
        return str(answer.get("metadata", {}).get("resourceVersion", ""))
    metadata = getattr(answer, "metadata", None)
    return metadata.resource_version if isinstance(metadata, ObjectMeta) else ""
