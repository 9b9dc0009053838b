"""The client without a network, in the server's own process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeVar

import msgspec

from tarragon.client.port import (
    ALL_OBJECTS,
    DEFAULT_DELETE,
    DEFAULT_LOG,
    DeleteOptions,
    LogOptions,
    ObjectList,
    Selector,
    WatchEvent,
)
from tarragon.kube.codec import decode, encode
from tarragon.kube.core import Pod
from tarragon.kube.json_depth import MAX_DEPTH, is_depth_within
from tarragon.kube.meta import Key, Resource
from tarragon.localcluster.api import errors
from tarragon.localcluster.api.requests import (
    ListOptions,
    PatchBody,
    PatchType,
    RequestTarget,
    WatchOptions,
    WriteOptions,
)
from tarragon.localcluster.api.user import HOME_OWNER
from tarragon.localcluster.registry.api import Api
from tarragon.localcluster.registry.computed import NOTHING_COMPUTED, ComputedKinds

T = TypeVar("T")


class InProcessCluster:
    """The port `Client` on an Api in the same event loop. `manager` is the field manager of its writes.

    It has the rights of the home's owner. `computed` are the kinds of which it may create objects that nothing stores.
    """

    def __init__(self, api: Api, manager: str = "tarragon", computed: ComputedKinds = NOTHING_COMPUTED) -> None:
        self._api = api
        self._computed = computed
        self._writing = WriteOptions(field_manager=manager)

    async def get(self, resource: Resource[T], key: Key) -> T:
        return decode(self._api.get(self._target(resource, key)), resource.model)

    async def list(self, resource: Resource[T], selection: Selector = ALL_OBJECTS) -> ObjectList[T]:
        options = ListOptions(labels=selection.label_selector, fields=selection.field_selector)
        page = self._api.list(self._target(resource, Key(selection.namespace, "")), options)
        return ObjectList([decode(item, resource.model) for item in page.items], page.resource_version)

    async def watch(self, resource: Resource[T], selection: Selector, since: str) -> AsyncIterator[WatchEvent[T]]:
        options = WatchOptions(
            labels=selection.label_selector,
            fields=selection.field_selector,
            resource_version=since,
            allow_bookmarks=True,
        )
        watch = self._api.watch(self._target(resource, Key(selection.namespace, "")), options)
        try:
            async for events in watch:
                for event in events:
                    thing = None if event.type == "BOOKMARK" else decode(event.object, resource.model)
                    yield WatchEvent(event.type, event.resource_version, thing)
        finally:
            watch.close()

    def stream_list(self, *_: object) -> None:
        """Nothing would be saved: the objects are in this process."""
        return

    async def create(self, resource: Resource[T], body: Mapping[str, Any]) -> T:
        metadata = body.get("metadata")
        namespace = metadata.get("namespace", "") if isinstance(metadata, Mapping) else ""
        if resource.namespaced and not namespace:
            raise errors.bad_request(f"an object of {resource.full_name} needs a metadata.namespace")
        target = self._target(resource, Key(str(namespace or ""), ""))
        if self._computed.serves(target):
            answer = await self._computed.handler_of(target).create(target, _deep_copied(body), HOME_OWNER)
            return decode(encode(answer), resource.model)
        written = await self._api.create(target, _deep_copied(body), self._writing)
        return decode(written.object, resource.model)

    async def patch(self, resource: Resource[T], key: Key, patch: Mapping[str, Any], *, subresource: str = "") -> T:
        target = self._target(resource, key, subresource)
        written = await self._api.patch(target, PatchBody(PatchType.MERGE, _deep_copied(patch)), self._writing)
        return decode(written.object, resource.model)

    async def delete(self, resource: Resource[T], key: Key, options: DeleteOptions = DEFAULT_DELETE) -> None:
        await self._api.delete(self._target(resource, key), options, self._writing)

    async def pod_log(self, key: Key, options: LogOptions = DEFAULT_LOG) -> AsyncIterator[bytes]:
        target = self._api.target(("", "v1", "pods"), key.namespace, key.name, "log")
        async for chunk in self._api.pod_log(target, options):
            yield chunk

    def _target(self, resource: Resource[T], key: Key, subresource: str = "") -> RequestTarget:
        path = (resource.group, resource.version, resource.plural)
        return self._api.target(path, key.namespace if resource.namespaced else "", key.name, subresource)


class Binder:
    """Creates pods/binding in process. Only a scheduler needs it, so it is not part of `Client`."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def bind(self, pod: Pod, node: str) -> None:
        """Raises Conflict if the pod is assigned or being deleted, NotFound if it is gone. The Api ignores the uid."""
        target = self._api.target(("", "v1", "pods"), pod.metadata.namespace, pod.metadata.name, "binding")
        metadata = {"name": pod.metadata.name, "namespace": pod.metadata.namespace, "uid": pod.metadata.uid}
        reference = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": reference}
        await self._api.create(target, binding)


def _deep_copied(body: Mapping[str, Any]) -> dict[str, Any]:
    """A deep copy, which the Api may change. Raises BadRequest for what is not JSON or is nested too deeply."""
    try:
        text = encode(body)
        if not is_depth_within(text, MAX_DEPTH):
            raise errors.nested_too_deeply()
        copied: dict[str, Any] = decode(text, dict)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise errors.bad_request(f"the object is not JSON: {error}") from error
    return copied
