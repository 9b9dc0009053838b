"""`Informer`: a local copy of all objects of a kind, kept up to date by list and watch, that notifies subscribers.

Where the server has streaming lists (Kubernetes 1.32), the watch itself begins with the objects.

Every change is reported once, whatever fails in between. A watch resumes from the last version seen. If the server's
history no longer reaches back that far, a new list is compared with the cache, so that deletes are reported too.

A watch may be open and deaf: kube-apiserver 1.20 was seen to tell a long watch nothing more, while lists and new
watches had all. The cache notices it by the server's answers to its own process's writes (`Informer.apply_write`). A
deaf watch of a kind that this process does not write, or does not write now, goes unnoticed until the watch ends.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import suppress
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import msgspec

from tarragon.base.clock import Clock
from tarragon.client.backoff import MAX_DELAY, ExponentialBackoff
from tarragon.client.errors import (
    ApiError,
    BadRequest,
    Forbidden,
    NotFound,
    ResourceExpired,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from tarragon.client.informer.cache_reader import CacheError, CacheRecovery, EventHandler, LostWatch, OngoingFailure
from tarragon.client.port import ALL_OBJECTS, Client, Selector, WatchEvent
from tarragon.client.streams import closing_stream
from tarragon.kube.codec import decode
from tarragon.kube.meta import Key, ObjectMeta, PartialObject, Resource

T = TypeVar("T")

MAX_DELAY_FOR_MISSING_KIND = 5.0
"""The maximum backoff for a kind that does not exist yet: its CRD is probably about to be installed."""
DEAF_AFTER_SECONDS = 1.0
"""A watch counts as deaf after so many seconds without a change while it lags behind the responses to writes.

The time doubles with each new watch until one has caught up, so that a slow server is not asked for many.
"""
MAX_DEAF_SECONDS = 16.0
"""After so many seconds without a change, all objects are listed again: new watches do not help."""
_LISTENINGS = 4
"""The pieces of that time: after each one the process looks for changes, so that a busy process has time to read."""
MIN_WATCH_SECONDS = 1.0
"""A watch that ends within fewer seconds and without an event is retried with backoff, not at once."""
_TRANSIENT = (Unreachable, TooManyRequests, Unauthorized, NotFound, ResourceExpired)
_UNNAMED = Key("", "(without a name)")
_ANY_NAMESPACE = "default"
_NO_OBJECT = "metadata.name=tarragon-asks-for-the-version-only"
"""With a namespace, a server answers this without looking at any other object."""
_YIELD_AFTER = 500
"""The number of objects of a list that are processed before other tasks get their turn on the event loop."""


class _Identity(PartialObject, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class Informer(Generic[T]):
    """`run` fills the cache and keeps it up to date. One task calls `run`; any number of tasks read.

    A subscriber that raises is a bug: `run` raises the exception, even if `apply_write` reported the change, and the
    cache must not be used afterwards. An object that can't be decoded is reported as a CacheError and keeps its last
    good state.
    """

    def __init__(
        self,
        cluster: Client,
        resource: Resource[T],
        clock: Clock,
        selection: Selector = ALL_OBJECTS,
        *,
        jitter: random.Random,
    ) -> None:
        self.resource = resource
        self._cluster = cluster
        # Raw, not T: one object that can't be decoded must neither hide the others of a list nor end the watch.
        self._raw = resource.with_model(msgspec.Raw)
        self._has_metadata = issubclass(resource.model, msgspec.Struct)
        self._clock = clock
        self._selection = selection
        self._pauses = ExponentialBackoff(clock, jitter)
        self._objects: dict[Key, T] = {}
        self._version = ""
        self._may_stream = True
        """False once the server has refused a streaming list."""
        self._failing: OngoingFailure | None = None
        self._recovered = -math.inf
        self._synced = asyncio.Event()
        self._learnt: dict[Key, int] = {}
        """The versions of objects that the watch has not delivered yet."""
        self._expected = 0
        """The highest version that a response to a write had; 0 if there was none."""
        self._last_change, self._changes = "", 0
        """The version of the last change that the watch delivered, or of the list. Bookmarks do not count."""
        self._patience = DEAF_AFTER_SECONDS
        self._is_history_lost = False
        """Whether etcd was restored from a snapshot since the last list: it uses versions of lost objects again."""
        self._has_written = asyncio.Event()
        self._handler_errors: asyncio.Queue[Exception] = asyncio.Queue()
        self._handlers: list[EventHandler[T]] = []
        self._on_error: list[Callable[[CacheError], None]] = []
        self._on_recovery: list[Callable[[CacheRecovery], None]] = []
        self._on_lost_watch: list[Callable[[LostWatch], None]] = []

    @property
    def objects(self) -> Mapping[Key, T]:
        """A live view. All readers share the objects: treat them as immutable."""
        return MappingProxyType(self._objects)

    @property
    def has_synced(self) -> bool:
        """Whether the first list has been processed completely."""
        return self._synced.is_set()

    def has_synced_in(self, _: str) -> bool:
        """All namespaces are listed at once."""
        return self.has_synced

    @property
    def last_resource_version(self) -> int:
        """The resourceVersion that the cache has reached, as a number; 0 before the first list."""
        return int(self._version or 0)

    @property
    def failure(self) -> OngoingFailure | None:
        """The current failure of the server; None while it responds."""
        return self._failing

    @property
    def recovered_at(self) -> float:
        """When the server last recovered from a failure, in monotonic seconds; negative infinity if it never failed."""
        return self._recovered

    async def wait_for_sync(self) -> None:
        """Return once `has_synced` is true. Waits forever if no task calls `run`."""
        await self._synced.wait()

    def apply_write(self, found: bytes) -> None:
        """Take in an object that the server returned for a write, before the watch delivers it.

        Objects that are older than the state of the watch are ignored. A watch that delivers no change for a second and
        has not reached this version counts as deaf and is replaced, because a dead connection may stay open for
        minutes. A cache with selectors ignores the object, because it can't tell whether the object is selected.
        """
        head = decode(found, _Head)
        key, resource_version = head.key, head.metadata.resource_version
        version = int(resource_version) if resource_version.isdecimal() else 0
        is_selected = self._selection in {ALL_OBJECTS, Selector(namespace=key.namespace)}
        if not is_selected or not self._version or version <= self.last_resource_version or self._is_past(key, version):
            return
        self._learnt[key] = version
        self._expected = max(self._expected, version)
        self._has_written.set()
        try:
            self._put(head, msgspec.Raw(found))
        except Exception as error:  # noqa: BLE001 - a subscriber's bug: the write succeeded, so `run` raises it instead
            self._handler_errors.put_nowait(error)

    def add_event_handler(self, handler: EventHandler[T]) -> None:
        """Call `handler(key, old, new)` for every change: `old` is None for an added object, `new` for a deleted one.

        Objects that are already cached are reported at once, as added. An object that was replaced by another one of
        the same name is reported as deleted and then as added. Handlers are called in the order of subscription, after
        `objects` has changed. They must be fast and must not block.
        """
        for key, known in self._objects.items():
            handler(key, None, known)
        self._handlers.append(handler)

    def on_error(self, handler: Callable[[CacheError], None]) -> None:
        """Call `handler` whenever the server fails or an object can't be decoded, usually to log it."""
        self._on_error.append(handler)

    def on_recovery(self, handler: Callable[[CacheRecovery], None]) -> None:
        """Call `handler` once when the server responds again; for a watch, that is at its first event."""
        self._on_recovery.append(handler)

    def on_lost_watch(self, handler: Callable[[LostWatch], None]) -> None:
        """Call `handler` whenever an open watch is replaced because it did not deliver what a write had changed."""
        self._on_lost_watch.append(handler)

    async def run(self) -> None:
        """Keep the cache up to date until cancelled. Raises BadRequest if the server can't parse the selectors."""
        await _first_of(self._list_and_watch(), self._raise_handler_error())

    async def _raise_handler_error(self) -> None:
        """Raise what a subscriber raised in `apply_write`."""
        raise await self._handler_errors.get()

    async def _list_and_watch(self) -> None:
        while True:
            try:
                if not self._version:
                    if not await self._stream():
                        await self._list()
                    continue
                if self._failing is not None:
                    await self._check_history()
                await self._watch()
            except ApiError as error:
                if isinstance(error, BadRequest) and not self._version:
                    raise
                if isinstance(error, ResourceExpired | NotFound | BadRequest | Forbidden):
                    # After Forbidden, a new list shows at once when access is granted again; a watch may stay silent.
                    self._version = ""
                await self._pause(error)

    async def _pause(self, error: ApiError) -> None:
        longest = MAX_DELAY_FOR_MISSING_KIND if isinstance(error, NotFound) else MAX_DELAY
        pause = self._pauses.next_delay(longest, at_least=error.retry_after)
        # Forbidden stands until the server responds otherwise: a timeout or a busy server does not supersede it.
        failing = self._failing
        if failing is None or not isinstance(failing.error, type(error) | Forbidden):
            self._failing = OngoingFailure(error, self._clock.monotonic())
        self._report(CacheError(resource=self.resource.full_name, error=error, retry_after=pause))
        await self._clock.sleep(pause)

    def _recover(self) -> None:
        if self._failing is None:
            return
        now = self._clock.monotonic()
        recovery = CacheRecovery(self.resource.full_name, now - self._failing.since)
        self._failing, self._recovered = None, now
        for handler in self._on_recovery:
            handler(recovery)

    async def _list(self) -> None:
        listing = await self._cluster.list(self._raw, self._selection)
        version, raws = listing.resource_version, deque(listing.items)
        del listing
        found: dict[Key, T | _Head] = {}
        for number in range(len(raws), 0, -1):
            # Each raw object is released once it is decoded: those of a large list need more memory than the rest.
            self._collect(found, raws.popleft())
            await self._yield_every(number)
        await self._replace(found)
        self._synced_at(version)

    def _synced_at(self, version: str) -> None:
        self._version = self._last_change = version
        self._is_history_lost = False
        self._recover()
        self._synced.set()

    async def _check_history(self) -> None:
        """After an outage, raise ResourceExpired if the server's history ends before the version of the cache.

        That is so when etcd was restored from an older snapshot meanwhile. A real server accepts watches from versions
        that it has yet to reach, and delivers nothing until then, not even a bookmark.
        """
        chosen = self._selection
        namespace = chosen.namespace or (_ANY_NAMESPACE if self.resource.namespaced else "")
        none = Selector(namespace=namespace, field_selector=_NO_OBJECT)
        version = (await self._cluster.list(self._raw, none)).resource_version
        if int(version) < self.last_resource_version:
            self._forget_history()
            raise _history_lost(version, self._version)

    def _forget_history(self) -> None:
        self._is_history_lost = True
        self._expected = 0

    async def _stream(self) -> bool:
        """List and watch by one request. Returns False if the server did not stream the list.

        A server may have streaming lists and fail at them: Kubernetes 1.32 and later do so on an etcd that does not
        report the progress of watches.
        """
        stream = self._cluster.stream_list(self._raw, self._selection) if self._may_stream else None
        if stream is None:
            return False
        async with closing_stream(stream) as events:
            try:
                await self._take_initial_events(events)
            except ApiError as error:
                # The list that follows either works or fails with the error to report.
                self._may_stream = _is_transient(error)
                return False
            # Without a version, something in between ends the stream before its bookmark, or never lets it through.
            self._may_stream = bool(self._version)
            if self._may_stream:
                await self._follow(events)
        return self._may_stream

    async def _take_initial_events(self, events: AsyncIterator[WatchEvent[msgspec.Raw]]) -> None:
        """Replace the contents of the cache by the first events, up to their bookmark.

        Nothing of them is in the cache before, so that subscribers never see a part of a list.
        """
        found: dict[Key, T | _Head] = {}
        async for event in events:
            if event.ends_initial_events:
                await self._replace(found)
                self._synced_at(event.resource_version)
                return
            if event.object is None:
                continue
            if event.type != "DELETED":
                self._collect(found, event.object)
            elif (head := self._head_of(event.object)) is not None:
                found.pop(head.key, None)

    def _collect(self, found: dict[Key, T | _Head], raw: msgspec.Raw) -> None:
        """Add an object of a list to `found`, as the cache will hold it: that needs less memory than the raw object.

        An object whose version is cached is not decoded again. Of an object that can't be decoded, the metadata is
        added; an object without readable metadata is left out.
        """
        if not self._objects and self._has_metadata:
            # The first list: nothing is cached, and the metadata need not be decoded separately.
            with suppress(msgspec.DecodeError):
                new = decode(bytes(raw), self.resource.model)
                identity = _identity(new)
                found[Key(identity.namespace, identity.name)] = new
                return
        head = self._head_of(raw)
        if head is None:
            return
        old = self._objects.get(head.key)
        if old is not None and self._is_known(old, head):
            found[head.key] = old
            return
        decoded = self._decode(head, raw)
        found[head.key] = head if decoded is None else decoded

    async def _replace(self, found: dict[Key, T | _Head]) -> None:
        """Replace the contents of the cache. Deletes are reported first, so that subscribers see resources freed first.

        An object that can't be decoded keeps its last good state, unless it is another object of that name.
        """
        self._learnt.clear()
        for key in self._objects.keys() - found.keys():
            self._remove(key)
        for number, (key, new) in enumerate(found.items(), 1):
            if not isinstance(new, _Head):
                self._store(key, new)
            elif key in self._objects and _identity(self._objects[key]).uid != new.metadata.uid:
                self._remove(key)
            await self._yield_every(number)

    async def _yield_every(self, number: int) -> None:
        if number % _YIELD_AFTER == 0:
            await self._clock.sleep(0)

    async def _watch(self) -> None:
        await self._follow(self._cluster.watch(self._raw, self._selection, self._version))

    async def _follow(self, watch: AsyncIterator[WatchEvent[msgspec.Raw]]) -> None:
        await _first_of(self._read(watch), self._detect_lost_watch())

    async def _read(self, watch: AsyncIterator[WatchEvent[msgspec.Raw]]) -> None:
        began, changes = self._clock.monotonic(), 0
        async with closing_stream(watch) as events:
            async for event in events:
                self._recover()
                changes += event.type != "BOOKMARK"
                self._take(event)
        self._recover()
        if not changes and self._clock.monotonic() - began < MIN_WATCH_SECONDS:
            await self._clock.sleep(self._pauses.next_delay(MAX_DELAY))

    async def _detect_lost_watch(self) -> None:
        """Return once the watch has not delivered a change that the server answered to a write.

        A watch that delivers other changes is slow, not deaf. Bookmarks prove nothing, as a deaf watch may get them.
        """
        while True:
            while self._is_behind:
                silence = self._patience
                if not await self._delivers_within(silence):
                    self._replace_deaf_watch(silence)
                    return
            if self._has_gap:
                self._replace_watch_with_gap()
                return
            self._patience = DEAF_AFTER_SECONDS
            self._has_written.clear()
            await self._has_written.wait()

    @property
    def _is_behind(self) -> bool:
        """Whether changes of this process are still to come. False as soon as one is known to be lost."""
        return self.last_resource_version < self._expected and not self._has_gap

    @property
    def _has_gap(self) -> bool:
        """Whether the watch has reached the version of a change that it did not deliver: it delivers them in order."""
        return any(version <= self.last_resource_version for version in self._learnt.values())

    async def _delivers_within(self, seconds: float) -> bool:
        """Whether the watch delivers a change in that time. The process waits in pieces of it.

        Seconds in which this process was too busy to read, or suspended, are one piece at most.
        """
        before = self._changes
        for _ in range(_LISTENINGS):
            await self._clock.sleep(seconds / _LISTENINGS)
            if self._changes != before or not self._is_behind:
                return True
        return False

    def _replace_deaf_watch(self, silence: float) -> None:
        """Watch again after the last change; when that has not helped for long, list again.

        The last change and not the last bookmark, since the deaf watch may have got a bookmark after what it missed. A
        server whose storage was restored from a backup no longer has the version that it answered.
        """
        lists_again = silence >= MAX_DEAF_SECONDS
        self._version = "" if lists_again else self._last_change
        if lists_again:
            self._forget_history()
        self._patience = DEAF_AFTER_SECONDS if lists_again else silence * 2
        self._report_lost_watch(LostWatch(self.resource.full_name, "deaf", silence, lists_again))

    def _replace_watch_with_gap(self) -> None:
        """List again: no version is known from which a new watch would deliver all that is missing."""
        self._version = ""
        self._report_lost_watch(LostWatch(self.resource.full_name, "gap", lists_again=True))

    def _report_lost_watch(self, lost: LostWatch) -> None:
        for handler in self._on_lost_watch:
            handler(lost)

    def _take(self, event: WatchEvent[msgspec.Raw]) -> None:
        if event.object is not None and event.type != "BOOKMARK":
            self._take_change(event, event.object)
            self._last_change = event.resource_version
            self._changes += 1
        self._version = event.resource_version

    def _take_change(self, event: WatchEvent[msgspec.Raw], raw: msgspec.Raw) -> None:
        head = self._head_of(raw)
        # The object in a DELETED event may have the version before the delete, so compare the version of the event.
        if head is None or self._is_past(head.key, int(event.resource_version)):
            return
        self._learnt.pop(head.key, None)
        if event.type == "DELETED":
            self._remove(head.key)
        else:
            self._put(head, raw)

    def _head_of(self, raw: msgspec.Raw) -> _Head | None:
        """The metadata of an object; None, after a report, if not even that can be decoded."""
        try:
            return decode(bytes(raw), _Head)
        except msgspec.DecodeError as error:
            self._report(CacheError(resource=self.resource.full_name, error=error, key=_UNNAMED))
            return None

    def _is_past(self, key: Key, version: int) -> bool:
        """Whether a response to a write has already delivered a later version, or another object of that name."""
        return version < self._learnt.get(key, 0)

    def _put(self, head: _Head, raw: msgspec.Raw) -> None:
        key, old = head.key, self._objects.get(head.key)
        if old is not None and self._is_known(old, head):
            return
        if old is not None and _identity(old).uid != head.metadata.uid:
            self._remove(key)
        new = self._decode(head, raw)
        if new is not None:
            self._store(key, new)

    def _is_known(self, old: T, head: _Head) -> bool:
        return _identity(old).resource_version == head.metadata.resource_version and not self._is_history_lost

    def _decode(self, head: _Head, raw: msgspec.Raw) -> T | None:
        """The object; None, after a report, if it can't be decoded as the cache's type."""
        try:
            return decode(bytes(raw), self.resource.model)
        except msgspec.DecodeError as error:
            self._report(CacheError(resource=self.resource.full_name, error=error, key=head.key))
            return None

    def _store(self, key: Key, new: T) -> None:
        old = self._objects.get(key)
        if old is new:
            return
        if old is not None and _identity(old).uid != _identity(new).uid:
            self._remove(key)
            old = None
        self._objects[key] = new
        for handler in self._handlers:
            handler(key, old, new)

    def _remove(self, key: Key) -> None:
        old = self._objects.pop(key, None)
        if old is None:
            return
        for handler in self._handlers:
            handler(key, old, None)

    def _report(self, error: CacheError) -> None:
        for handler in self._on_error:
            handler(error)


def _is_transient(error: ApiError) -> bool:
    """Whether the server may well stream the next list. Other 5xx than 503 stand for something that it can't do."""
    return isinstance(error, _TRANSIENT) or error.code == HTTPStatus.SERVICE_UNAVAILABLE


def _history_lost(found: str, known: str) -> ResourceExpired:
    message = (
        f"the server is at resourceVersion {found} and was at {known}: etcd was restored from an older snapshot,"
        " so everything is listed again"
    )
    return ResourceExpired({"kind": "Status", "code": 410, "message": message})


async def _first_of(*works: Coroutine[None, None, None]) -> None:
    """Run all until the first one returns or raises, then cancel the others."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


class _Head(PartialObject, frozen=True):
    """The metadata that shows whether an object has changed, at a fraction of the cost of decoding all of it."""

    metadata: _Identity = _Identity()

    @property
    def key(self) -> Key:
        return Key(self.metadata.namespace, self.metadata.name)


def namespace_of(found: bytes) -> str:
    """The namespace of an encoded object."""
    return decode(found, _Head).key.namespace


def _identity(decoded: Any) -> _Identity | ObjectMeta:
    """The metadata of a decoded object, which is a Struct or a dict."""
    if isinstance(decoded, dict):
        return msgspec.convert(decoded["metadata"], _Identity)
    metadata: ObjectMeta = decoded.metadata
    return metadata
