"""`Cache`: a live copy of all objects of a kind, kept by list and watch, that tells its subscribers of every change.

A change is told once, whatever breaks in between: a watch goes on from the last version seen, and where the server's
history no longer reaches back that far, a new list is compared with what is held, so that deletes are told, too.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import msgspec

from tarragon.base.clock import Clock, within
from tarragon.client.backoff import LONGEST_PAUSE, Pauses
from tarragon.client.errors import ApiError, BadRequest, Expired, Forbidden, NotFound
from tarragon.client.informer.cache_reader import Failing, Handler, Recovery, Trouble
from tarragon.client.port import EVERYTHING, Cluster, Selection, WatchEvent
from tarragon.client.streams import closed_after
from tarragon.kube.codec import decode
from tarragon.kube.meta import Key, ObjectMeta, Resource, Struct

T = TypeVar("T")

LONGEST_PAUSE_FOR_A_KIND = 5.0
"""A kind that is not there yet is asked for more often: somebody has probably just begun to install it."""
LATEST_SECONDS = 20.0
"""No watch that works is so far behind what the server has answered."""
SHORTEST_WATCH = 1.0
"""A watch that ends sooner than this and brings nothing is trouble: without a pause it would be asked for at once."""
_UNNAMED = Key("", "(without a name)")
_BREATH = 500
"""Objects of one list that are taken in before others get their turn on the event loop."""


class _Identity(Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class Cache(Generic[T]):
    """`run` fills it and keeps it up to date; one task calls `run`, any number of others read.

    A subscriber that raises is a bug: the exception leaves `run`, whoever had the change told, and the cache is not to
    be used after that.
    An object that can't be decoded is reported as Trouble; the last state of it that could be decoded stays.
    """

    def __init__(
        self,
        cluster: Cluster,
        resource: Resource[T],
        clock: Clock,
        selection: Selection = EVERYTHING,
        *,
        jitter: random.Random,
    ) -> None:
        self.resource = resource
        self._cluster = cluster
        # Raw, not T: one object that can't be decoded must not hide the others of its list, or end its watch.
        self._raw = resource.reading(msgspec.Raw)
        self._clock = clock
        self._selection = selection
        self._pauses = Pauses(clock, jitter)
        self._objects: dict[Key, T] = {}
        self._version = ""
        self._failing: Failing | None = None
        self._recovered = -math.inf
        self._synced = asyncio.Event()
        self._learnt: dict[Key, int] = {}
        """The versions of objects that the watch is still to bring."""
        self._expected = self._awaited = 0
        self._is_in_doubt = False
        self._is_behind, self._has_come = asyncio.Event(), asyncio.Event()
        self._bugs: asyncio.Queue[Exception] = asyncio.Queue()
        self._handlers: list[Handler[T]] = []
        self._troubled: list[Callable[[Trouble], None]] = []
        self._relieved: list[Callable[[Recovery], None]] = []

    @property
    def objects(self) -> Mapping[Key, T]:
        """A live view. The objects are shared by all readers: treat them as frozen."""
        return MappingProxyType(self._objects)

    @property
    def is_synced(self) -> bool:
        """Whether a first list has been taken in whole."""
        return self._synced.is_set()

    @property
    def version(self) -> int:
        """How far it has followed the server, as a number; 0 before the first list."""
        return int(self._version or 0)

    @property
    def failing(self) -> Failing | None:
        """None while the server answers."""
        return self._failing

    @property
    def recovered(self) -> float:
        """When, of the clock's monotonic seconds, it answered again after it had failed."""
        return self._recovered

    async def synced(self) -> None:
        """Return when `is_synced`. Waits for ever if nobody runs `run`."""
        await self._synced.wait()

    def learn(self, found: bytes) -> None:
        """The server has answered a write with this object: what a watch is still to bring is known at once.

        What the watch has been past already is older than what it told. And a watch that does not come so far is lost,
        and is begun anew: by itself a connection may stay open for minutes that brings nothing any more. Nothing is
        learnt where selectors say which objects are held.
        """
        head = decode(found, _Head)
        key, written = head.key, head.metadata.resource_version
        version = int(written) if written.isdecimal() else 0
        is_ours = self._selection in {EVERYTHING, Selection(namespace=key.namespace)}
        if not is_ours or not self._version or version <= self.version or self._is_past(key, version):
            return
        self._learnt[key] = version
        self._expected = max(self._expected, version)
        self._is_behind.set()
        try:
            self._put(head, msgspec.Raw(found))
        except Exception as bug:  # noqa: BLE001 - whatever a subscriber raises: the write went well, and `run` tells it
            self._bugs.put_nowait(bug)

    def subscribe(self, handler: Handler[T]) -> None:
        """Call `handler(key, old, new)` for every change: `old` is None for a new object, `new` for one that is gone.

        What is held already is told at once, as new. An object that was replaced by another of the same name is told
        as gone and then as new. Handlers are called in the order they came, after `objects` has changed; they must
        be quick and must not wait.
        """
        for key, held in self._objects.items():
            handler(key, None, held)
        self._handlers.append(handler)

    def on_trouble(self, handler: Callable[[Trouble], None]) -> None:
        """Call `handler` whenever the server fails or an object can't be read; usually it writes a log."""
        self._troubled.append(handler)

    def on_recovery(self, handler: Callable[[Recovery], None]) -> None:
        """Call `handler` once when the server answers again: of a quiet watch that is seen at its first event."""
        self._relieved.append(handler)

    async def run(self) -> None:
        """For ever, until cancelled. A BadRequest to the list (a selector that nobody can parse) is a bug: raised."""
        await _first_of(self._follow(), self._meet_bug())

    async def _meet_bug(self) -> None:
        """Raise what a subscriber has made of an answer."""
        raise await self._bugs.get()

    async def _follow(self) -> None:
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except ApiError as error:
                if isinstance(error, BadRequest) and not self._version:
                    raise
                if isinstance(error, Expired | NotFound | BadRequest | Forbidden):
                    # Of what was forbidden for a while a new list tells, and at once, that it is allowed again.
                    self._version = ""
                await self._pause(error)

    async def _pause(self, error: ApiError) -> None:
        longest = LONGEST_PAUSE_FOR_A_KIND if isinstance(error, NotFound) else LONGEST_PAUSE
        pause = self._pauses.next(longest, at_least=error.retry_after)
        # A refusal stands until there is a better answer: silence, or a busy server, takes nothing of it back.
        known = self._failing
        if known is None or not isinstance(known.error, type(error) | Forbidden):
            self._failing = Failing(error, self._clock.monotonic())
        self._report(Trouble(resource=self.resource.full_name, error=error, pause=pause))
        await self._clock.sleep(pause)

    def _answered(self) -> None:
        if self._failing is None:
            return
        now = self._clock.monotonic()
        recovery = Recovery(self.resource.full_name, now - self._failing.since)
        self._failing, self._recovered = None, now
        for handler in self._relieved:
            handler(recovery)

    async def _list(self) -> None:
        listing = await self._cluster.list(self._raw, self._selection)
        version, raws = listing.resource_version, deque(listing.items)
        del listing
        await self._replace(raws)
        self._version = version
        self._answered()
        self._synced.set()

    async def _replace(self, raws: deque[msgspec.Raw]) -> None:
        """Deletes come first: what replaces the vanished may need their room.

        Each raw object is let go of once it is read: of a large list they take as much room as what is kept of it.
        """
        heads: deque[_Head] = deque()
        for number in range(len(raws), 0, -1):
            raw = raws.popleft()
            head = self._head_of(raw)
            if head is not None:
                heads.append(head)
                raws.append(raw)
            await self._breathe(number)
        self._learnt.clear()
        for key in self._objects.keys() - {head.key for head in heads}:
            self._remove(key)
        while raws:
            self._put(heads.popleft(), raws.popleft())
            await self._breathe(len(raws))

    async def _breathe(self, number: int) -> None:
        if number % _BREATH == 0:
            await self._clock.sleep(0)

    async def _watch(self) -> None:
        await _first_of(self._read(), self._lost())

    async def _read(self) -> None:
        began, changes = self._clock.monotonic(), 0
        async with closed_after(self._cluster.watch(self._raw, self._selection, self._version)) as events:
            async for event in events:
                self._answered()
                changes += event.type != "BOOKMARK"
                self._take(event)
        self._answered()
        if not changes and self._clock.monotonic() - began < SHORTEST_WATCH:
            await self._clock.sleep(self._pauses.next(LONGEST_PAUSE))

    async def _lost(self) -> None:
        """Return when the watch has not brought for too long what the server is known to have."""
        while True:
            await self._is_behind.wait()
            self._is_behind.clear()
            self._awaited = self._expected
            if self.version < self._awaited:
                self._has_come.clear()
                try:
                    await within(self._clock, LATEST_SECONDS, self._has_come.wait())
                except TimeoutError:
                    self._doubt()
                    return
            if self.version < self._expected:
                self._is_behind.set()

    def _doubt(self) -> None:
        """The watch first, then what we were told: a server whose storage was put back does not know of it any more."""
        if self._is_in_doubt:
            self._version, self._expected = "", 0
        self._is_in_doubt = not self._is_in_doubt
        self._is_behind.set()

    def _take(self, event: WatchEvent[msgspec.Raw]) -> None:
        if event.object is not None and event.type != "BOOKMARK":
            self._take_change(event, event.object)
        self._version = event.resource_version
        if self._awaited and self.version >= self._awaited:
            self._is_in_doubt = False
            self._has_come.set()

    def _take_change(self, event: WatchEvent[msgspec.Raw], raw: msgspec.Raw) -> None:
        head = self._head_of(raw)
        # One that is deleted may bear the version that it had before.
        if head is None or self._is_past(head.key, int(event.resource_version)):
            return
        self._learnt.pop(head.key, None)
        if event.type == "DELETED":
            self._remove(head.key)
        else:
            self._put(head, raw)

    def _head_of(self, raw: msgspec.Raw) -> _Head | None:
        """None for an object of which not even the name can be read: it is reported, and left out."""
        try:
            return decode(bytes(raw), _Head)
        except msgspec.DecodeError as error:
            self._report(Trouble(resource=self.resource.full_name, error=error, key=_UNNAMED))
            return None

    def _is_past(self, key: Key, version: int) -> bool:
        """Whether the server has answered already with what became of it, or with another one of its name."""
        return version < self._learnt.get(key, 0)

    def _put(self, head: _Head, raw: msgspec.Raw) -> None:
        key, old = head.key, self._objects.get(head.key)
        if old is not None and _identity(old).resource_version == head.metadata.resource_version:
            return
        if old is not None and _identity(old).uid != head.metadata.uid:
            self._remove(key)
            old = None
        try:
            new = decode(bytes(raw), self.resource.model)
        except msgspec.DecodeError as error:
            self._report(Trouble(resource=self.resource.full_name, error=error, key=key))
            return
        self._objects[key] = new
        for handler in self._handlers:
            handler(key, old, new)

    def _remove(self, key: Key) -> None:
        old = self._objects.pop(key, None)
        if old is None:
            return
        for handler in self._handlers:
            handler(key, old, None)

    def _report(self, trouble: Trouble) -> None:
        for handler in self._troubled:
            handler(trouble)


async def _first_of(*works: Coroutine[None, None, None]) -> None:
    """Until one of them returns or raises; what the others do is broken off."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


class _Head(Struct, frozen=True):
    """Enough to know whether an object has changed, at a fraction of the cost of reading it."""

    metadata: _Identity = _Identity()

    @property
    def key(self) -> Key:
        return Key(self.metadata.namespace, self.metadata.name)


def namespace_of(found: bytes) -> str:
    """Of any object, as a server tells it."""
    return decode(found, _Head).key.namespace


def _identity(held: Any) -> _Identity | ObjectMeta:
    """Of an object as the user of the cache wanted it: a Struct with metadata, or a dict."""
    if isinstance(held, dict):
        return msgspec.convert(held["metadata"], _Identity)
    metadata: ObjectMeta = held.metadata
    return metadata
