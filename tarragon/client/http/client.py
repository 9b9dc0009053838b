"""`HttpClient`: the protocol `Client` over HTTP, for the embedded API server and for any other."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, suppress
from types import MappingProxyType
from typing import Any, Self, TypeVar, cast

import msgspec

from tarragon.base.clock import Clock, SystemClock
from tarragon.client.errors import Invalid, ResourceExpired, error_from_status, unavailable
from tarragon.client.http.requests import (
    PAGE,
    PAGED_ATTEMPTS,
    ListPage,
    collection_path,
    decode_response,
    object_path,
    selector_query,
)
from tarragon.client.http.transport import Request, RestConfig, StreamReadTimeout, Transport, lines
from tarragon.client.port import (
    ALL_OBJECTS,
    DEFAULT_DELETE,
    DEFAULT_LOG,
    DeleteOptions,
    EventType,
    LogOptions,
    ObjectList,
    Selector,
    WatchEvent,
)
from tarragon.kube.codec import encode
from tarragon.kube.core import PODS
from tarragon.kube.meta import Key, Resource

T = TypeVar("T")

_WATCH_SECONDS = (300, 600)
"""The range of a watch's timeout. Each watch picks a random value, so that clients do not all reconnect at once."""

_SILENCE_SECONDS = 150.0
"""The time without an event after which a watch is restarted. Servers send a bookmark about once a minute.

Silence does not prove a fault: kube-apiserver 1.20 sends no bookmarks for kinds that did not change since it started
(observed).
"""

_INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""The annotation of the bookmark after the last object of a streaming list."""

# Servers that know sendInitialEvents but do not stream lists, and older ones that know no resourceVersionMatch of
# watches, answer Invalid to this query; without the latter, old servers would never send the bookmark.
_STREAMING = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}

_CLOCK = SystemClock()

_EVENT_TYPES: Mapping[str, EventType] = MappingProxyType(
    {"ADDED": "ADDED", "MODIFIED": "MODIFIED", "DELETED": "DELETED", "BOOKMARK": "BOOKMARK"}
)


class _Event(msgspec.Struct):
    """A watch event. The object stays undecoded: it depends on the type, and a real BOOKMARK is full of nulls."""

    type: str
    object: msgspec.Raw


class _Meta(msgspec.Struct):
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    annotations: dict[str, msgspec.Raw] | None = None


class _Versioned(msgspec.Struct):
    metadata: _Meta


class _VersionOnly(msgspec.Struct):
    resource_version: str = msgspec.field(default="", name="resourceVersion")


class _Version(msgspec.Struct):
    metadata: _VersionOnly


class HttpClient:
    """A client of a Kubernetes API over HTTP. Use it as an async context manager, or close it."""

    def __init__(self, server: RestConfig, dice: random.Random, clock: Clock = _CLOCK) -> None:
        """The clock is used for the pauses between attempts. Raises CredentialsError for an invalid token."""
        self._transport = Transport(server, dice, clock)
        self._url = server.url
        self._dice = dice
        self._may_stream_lists = True
        """False once the server has refused a streaming list."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.close()

    def check_before_writes(self, check: Callable[[], None]) -> None:
        """Call `check` before each write is sent, retries included. If it raises, the write is not sent."""
        self._transport.check_before_writes(check)

    def on_warning(self, handler: Callable[[str], None]) -> None:
        """Call `handler` with each warning of the server, once, usually to show it."""
        self._transport.on_warning(handler)

    async def get(self, resource: Resource[T], key: Key) -> T:
        answer = await self._transport.call(Request(method="GET", path=object_path(resource, key)))
        return self._read(answer, resource.model)

    async def list(self, resource: Resource[T], selection: Selector = ALL_OBJECTS) -> ObjectList[T]:
        for _ in range(PAGED_ATTEMPTS):
            with suppress(ResourceExpired):
                return await self._list(resource, selection, {"limit": str(PAGE)})
        return await self._list(resource, selection, {})

    def watch(self, resource: Resource[T], selection: Selector, since: str) -> AsyncIterator[WatchEvent[T]]:
        return self._watch(resource, selection, {"resourceVersion": since})

    def stream_list(self, resource: Resource[T], selection: Selector) -> AsyncIterator[WatchEvent[T]] | None:
        return self._stream_list(resource, selection)

    async def _stream_list(self, resource: Resource[T], selection: Selector) -> AsyncIterator[WatchEvent[T]]:
        """Where the server does not stream lists, the objects come from the pages of a list."""
        has_begun = False
        if self._may_stream_lists:
            try:
                async with aclosing(self._watch(resource, selection, _STREAMING, has_initial_events=True)) as events:
                    async for event in events:
                        has_begun = True
                        yield event
                return
            except Invalid:
                if has_begun:
                    raise
                self._may_stream_lists = False
        version = ""
        async with aclosing(self._pages(resource, selection, {"limit": str(PAGE)})) as pages:
            async for page in pages:
                version = page.metadata.resource_version
                for item in page.items or ():
                    yield WatchEvent("ADDED", "", self._read_part(item, resource.model))
        yield WatchEvent("BOOKMARK", version, None, ends_initial_events=True)
        async with aclosing(self._watch(resource, selection, {"resourceVersion": version})) as events:
            async for event in events:
                yield event

    async def _watch(
        self,
        resource: Resource[T],
        selection: Selector,
        query: Mapping[str, str],
        *,
        has_initial_events: bool = False,
    ) -> AsyncGenerator[WatchEvent[T], None]:
        request = Request(
            method="GET",
            path=collection_path(resource, selection.namespace),
            query={
                "watch": "true",
                "allowWatchBookmarks": "true",
                "timeoutSeconds": str(self._dice.randint(*_WATCH_SECONDS)),
                **query,
                **selector_query(selection),
            },
            read_timeout=_SILENCE_SECONDS,
        )
        async with aclosing(self._transport.stream(request)) as chunks, aclosing(lines(chunks)) as complete:
            try:
                async for line in complete:
                    event = self._event(line, resource.model, has_version=not has_initial_events)
                    has_initial_events = has_initial_events and not event.ends_initial_events
                    yield event
            except StreamReadTimeout:
                # Treated as a normal end: the next watch, on a new connection, shows whether the server responds.
                return

    async def create(self, resource: Resource[T], body: Mapping[str, Any]) -> T:
        namespace = str((body.get("metadata") or {}).get("namespace") or "")
        request = Request(method="POST", path=collection_path(resource, namespace), body=encode(body))
        return self._read(await self._transport.call(request), resource.model)

    async def dry_run_create(self, resource: Resource[T], body: Mapping[str, Any]) -> T:
        """A dry run of `create`, admission included: returns or raises the same and creates nothing."""
        namespace = str((body.get("metadata") or {}).get("namespace") or "")
        path = collection_path(resource, namespace)
        request = Request(method="POST", path=path, query={"dryRun": "All"}, body=encode(body))
        return self._read(await self._transport.call(request), resource.model)

    async def patch(self, resource: Resource[T], key: Key, patch: Mapping[str, Any], *, subresource: str = "") -> T:
        request = Request(
            method="PATCH",
            path=object_path(resource, key, subresource),
            body=encode(patch),
            content_type="application/merge-patch+json",
        )
        return self._read(await self._transport.call(request), resource.model)

    async def delete(self, resource: Resource[T], key: Key, options: DeleteOptions = DEFAULT_DELETE) -> None:
        body = encode(_delete_options(options))
        await self._transport.call(Request(method="DELETE", path=object_path(resource, key), body=body))

    async def pod_log(self, key: Key, options: LogOptions = DEFAULT_LOG) -> AsyncIterator[bytes]:
        request = Request(method="GET", path=object_path(PODS, key, "log"), query=_log_query(options))
        async with aclosing(self._transport.stream(request)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _list(self, resource: Resource[T], selection: Selector, query: Mapping[str, str]) -> ObjectList[T]:
        items: list[T] = []
        version = ""
        async with aclosing(self._pages(resource, selection, query)) as pages:
            async for page in pages:
                version = page.metadata.resource_version
                items += (self._read(bytes(item), resource.model) for item in page.items or ())
        return ObjectList(items, version)

    async def _pages(
        self, resource: Resource[T], selection: Selector, query: Mapping[str, str]
    ) -> AsyncGenerator[ListPage, None]:
        path = collection_path(resource, selection.namespace)
        parameters = {**selector_query(selection), **query}
        while True:
            page = self._read(await self._transport.call(Request(method="GET", path=path, query=parameters)), ListPage)
            yield page
            if not page.metadata.next_page:
                return
            parameters["continue"] = page.metadata.next_page

    def _event(self, line: bytes, model: type[T], *, has_version: bool) -> WatchEvent[T]:
        event = self._read(line, _Event)
        if event.type == "ERROR":
            raise error_from_status(self._read(bytes(event.object), dict))
        kind = _EVENT_TYPES.get(event.type)
        if kind is None:
            raise unavailable(f"{self._url} sent a watch event of an unknown type: {event.type!r}")
        if kind == "BOOKMARK":
            metadata = self._read(bytes(event.object), _Versioned).metadata
            return WatchEvent(
                kind, metadata.resource_version, None, _INITIAL_EVENTS_END in (metadata.annotations or ())
            )
        # A large list has as many initial events, each of some kilobytes: none is read more often than necessary.
        version = self._read(bytes(event.object), _Version).metadata.resource_version if has_version else ""
        return WatchEvent(kind, version, self._read_part(event.object, model))

    def _read_part(self, part: msgspec.Raw, model: type[T]) -> T:
        """Decode a part of a text whose syntax has been checked with it."""
        return cast("T", part) if model is msgspec.Raw else self._read(bytes(part), model)

    def _read(self, data: bytes, model: type[T]) -> T:
        return decode_response(data, model, self._url)


def _delete_options(options: DeleteOptions) -> dict[str, Any]:
    preconditions = {"uid": options.uid, "resourceVersion": options.resource_version}
    fields: dict[str, Any] = {
        "preconditions": {name: value for name, value in preconditions.items() if value} or None,
        "gracePeriodSeconds": options.grace_period_seconds,
        "propagationPolicy": options.propagation_policy,
    }
    return {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        **{name: value for name, value in fields.items() if value is not None},
    }


def _log_query(options: LogOptions) -> dict[str, str]:
    parameters = {
        "container": options.container,
        "follow": "true" if options.follow else "",
        "previous": "true" if options.previous else "",
        "timestamps": "true" if options.timestamps else "",
        "tailLines": "" if options.tail_lines is None else str(options.tail_lines),
        "sinceSeconds": "" if options.since_seconds is None else str(options.since_seconds),
    }
    return {name: value for name, value in parameters.items() if value}
