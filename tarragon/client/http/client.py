"""The port `Cluster` over HTTP, for the embedded API server and for any other."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, suppress
from types import MappingProxyType
from typing import Any, Self, TypeVar

import msgspec

from tarragon.base.clock import Clock, SystemClock
from tarragon.client.errors import BadRequest, Expired, from_status, unavailable
from tarragon.client.http.transport import Request, Server, Silent, Transport, lines
from tarragon.client.port import (
    EVERYTHING,
    PLAIN_DELETE,
    WHOLE_LOG,
    DeleteOptions,
    EventType,
    Listing,
    LogOptions,
    Selection,
    WatchEvent,
)
from tarragon.kube.codec import decode, encode
from tarragon.kube.core import PODS
from tarragon.kube.meta import Key, Resource

T = TypeVar("T")

_PAGE = 1000
"""Objects asked for at once: a page of pods is then about two megabytes, and half as many answers are waited for as
by pages of kubectl's size."""

_ATTEMPTS_BY_PAGES = 2
"""Servers forget every five minutes: a second attempt has the time that the first one lacked."""

_WATCH_SECONDS = (300, 600)
"""How long a watch is asked to last. Drawn anew each time, so that a server's clients do not all come back at once."""

_SILENCE_SECONDS = 150.0
"""Bookmarks come about once a minute. Two and a half without one: the other end may be gone without a word.

It may also be well: kube-apiserver 1.20 sends none for kinds to which nothing has happened since it started (seen).
"""

_CLOCK = SystemClock()

_EVENT_TYPES: Mapping[str, EventType] = MappingProxyType(
    {"ADDED": "ADDED", "MODIFIED": "MODIFIED", "DELETED": "DELETED", "BOOKMARK": "BOOKMARK"}
)


class _ListMeta(msgspec.Struct):
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    next_page: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct):
    """The items stay undecoded: each has the limits of depth to itself."""

    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None  # Go writes an empty list as null


class _Event(msgspec.Struct):
    """The object stays undecoded: what it is depends on the type, and a real BOOKMARK is full of nulls."""

    type: str
    object: msgspec.Raw


class _Meta(msgspec.Struct):
    resource_version: str = msgspec.field(default="", name="resourceVersion")


class _Versioned(msgspec.Struct):
    metadata: _Meta


class Http:
    """A Kubernetes API at the other end of a wire. Use it as an async context manager, or close it."""

    def __init__(self, server: Server, dice: random.Random, clock: Clock = _CLOCK) -> None:
        """The clock is for the pauses between attempts. Raises NoCredentials for a token that none can be."""
        self._transport = Transport(server, dice, clock)
        self._url = server.url
        self._dice = dice

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.close()

    def guard(self, check: Callable[[], None]) -> None:
        """Call `check` before each write is sent, repetitions included; what it raises is raised instead of sending."""
        self._transport.guard(check)

    async def get(self, resource: Resource[T], key: Key) -> T:
        answer = await self._transport.call(Request(method="GET", path=_path(resource, key)))
        return self._read(answer, resource.model)

    async def list(self, resource: Resource[T], selection: Selection = EVERYTHING) -> Listing[T]:
        for _ in range(_ATTEMPTS_BY_PAGES):
            with suppress(Expired):
                return await self._list(resource, selection, {"limit": str(_PAGE)})
        # A busy server forgets the moment of our first page before we ask for the last: take all in one piece.
        return await self._list(resource, selection, {})

    async def watch(self, resource: Resource[T], selection: Selection, since: str) -> AsyncIterator[WatchEvent[T]]:
        request = Request(
            method="GET",
            path=_collection(resource, selection.namespace),
            query={
                "watch": "true",
                "resourceVersion": since,
                "allowWatchBookmarks": "true",
                "timeoutSeconds": str(self._dice.randint(*_WATCH_SECONDS)),
                **_selectors(selection),
            },
            silence=_SILENCE_SECONDS,
        )
        async with aclosing(self._transport.stream(request)) as chunks, aclosing(lines(chunks)) as complete:
            try:
                async for line in complete:
                    yield self._event(line, resource.model)
            except Silent:
                # An end like any other: whoever watches again finds out on a new connection what is the matter.
                return

    async def create(self, resource: Resource[T], body: Mapping[str, Any]) -> T:
        namespace = str((body.get("metadata") or {}).get("namespace") or "")
        request = Request(method="POST", path=_collection(resource, namespace), body=encode(body))
        return self._read(await self._transport.call(request), resource.model)

    async def tried(self, resource: Resource[T], body: Mapping[str, Any]) -> T:
        """What `create` would answer, admission included; nothing is made. Raises as `create` does."""
        namespace = str((body.get("metadata") or {}).get("namespace") or "")
        path = _collection(resource, namespace)
        request = Request(method="POST", path=path, query={"dryRun": "All"}, body=encode(body))
        return self._read(await self._transport.call(request), resource.model)

    async def patch(self, resource: Resource[T], key: Key, patch: Mapping[str, Any], *, subresource: str = "") -> T:
        request = Request(
            method="PATCH",
            path=_path(resource, key, subresource),
            body=encode(patch),
            content_type="application/merge-patch+json",
        )
        return self._read(await self._transport.call(request), resource.model)

    async def delete(self, resource: Resource[T], key: Key, options: DeleteOptions = PLAIN_DELETE) -> None:
        body = encode(_delete_options(options))
        await self._transport.call(Request(method="DELETE", path=_path(resource, key), body=body))

    async def pod_log(self, key: Key, options: LogOptions = WHOLE_LOG) -> AsyncIterator[bytes]:
        request = Request(method="GET", path=_path(PODS, key, "log"), query=_log_query(options))
        async with aclosing(self._transport.stream(request)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _list(self, resource: Resource[T], selection: Selection, query: Mapping[str, str]) -> Listing[T]:
        path = _collection(resource, selection.namespace)
        asked = {**_selectors(selection), **query}
        items: list[T] = []
        while True:
            answer = await self._transport.call(Request(method="GET", path=path, query=asked))
            page = self._read(answer, _Page)
            items += (self._read(bytes(item), resource.model) for item in page.items or ())
            if not page.metadata.next_page:
                return Listing(items, page.metadata.resource_version)
            asked["continue"] = page.metadata.next_page

    def _event(self, line: bytes, model: type[T]) -> WatchEvent[T]:
        event = self._read(line, _Event)
        if event.type == "ERROR":
            raise from_status(self._read(bytes(event.object), dict))
        version = self._read(bytes(event.object), _Versioned).metadata.resource_version
        kind = _EVENT_TYPES.get(event.type)
        if kind is None:
            raise unavailable(f"{self._url} sent a watch event of a type that nobody knows: {event.type!r}")
        known = None if kind == "BOOKMARK" else self._read(bytes(event.object), model)
        return WatchEvent(kind, version, known)

    def _read(self, data: bytes, model: type[T]) -> T:
        try:
            return decode(data, model)
        except msgspec.DecodeError as error:
            raise unavailable(f"{self._url} answered with what no API server says: {error}") from error


def _collection(resource: Resource[T], namespace: str) -> str:
    _refuse_as_path(namespace)
    return resource.path(namespace)


def _path(resource: Resource[T], key: Key, subresource: str = "") -> str:
    if not key.name:
        # The path would be the collection's, and a delete of it a disaster.
        raise _bad_request(f"resource name may not be empty: {resource.full_name} in {key.namespace or 'the cluster'}")
    _refuse_as_path(key.name)
    _refuse_as_path(key.namespace)
    return resource.path(key.namespace, key.name, subresource)


def _refuse_as_path(name: str) -> None:
    if "/" in name or name in {".", ".."}:
        raise _bad_request(f'invalid resource name "{name}": may not contain "/" or be "." or ".."')


def _bad_request(message: str) -> BadRequest:
    return BadRequest({"kind": "Status", "status": "Failure", "code": 400, "reason": "BadRequest", "message": message})


def _selectors(selection: Selection) -> dict[str, str]:
    asked = {"labelSelector": selection.labels, "fieldSelector": selection.fields}
    return {name: value for name, value in asked.items() if value}


def _delete_options(options: DeleteOptions) -> dict[str, Any]:
    preconditions = {"uid": options.uid, "resourceVersion": options.resource_version}
    asked: dict[str, Any] = {
        "preconditions": {name: value for name, value in preconditions.items() if value} or None,
        "gracePeriodSeconds": options.grace_seconds,
        "propagationPolicy": options.propagation,
    }
    return {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        **{name: value for name, value in asked.items() if value is not None},
    }


def _log_query(options: LogOptions) -> dict[str, str]:
    asked = {
        "container": options.container,
        "follow": "true" if options.follow else "",
        "previous": "true" if options.previous else "",
        "timestamps": "true" if options.timestamps else "",
        "tailLines": "" if options.tail_lines is None else str(options.tail_lines),
        "sinceSeconds": "" if options.since_seconds is None else str(options.since_seconds),
    }
    return {name: value for name, value in asked.items() if value}
