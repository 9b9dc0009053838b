"""A running watch: a position in the history of a kind, from which the client reads changes.

A watch has no queue, so a slow client costs no memory. A client whose position has left the history gets the error
Expired and must list again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from tarragon.client.port import EventType
from tarragon.kube.codec import encode
from tarragon.localcluster.api import errors
from tarragon.localcluster.api.requests import EncodedEvent
from tarragon.localcluster.kinds.resource import ServedKind
from tarragon.localcluster.storage.encoding import encode_in_version, with_revision
from tarragon.localcluster.storage.selectors import Matcher
from tarragon.localcluster.storage.store import Store
from tarragon.localcluster.storage.watch_cache import Change, StoredObject

_MAX_BATCH = 1_000
"""Changes handled without giving up the event loop, so that a long replay does not delay other clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchScope:
    """The scope of a watch: a kind in one version, a namespace (empty means all) and a selector."""

    served: ServedKind
    namespace: str
    matches: Matcher
    has_bookmarks: bool

    def includes(self, stored: StoredObject | None) -> bool:
        if stored is None or (self.namespace and stored.key[0] != self.namespace):
            return False
        return self.matches(stored)


class Watch:
    """An async iterator over batches of events; each batch holds all events that were ready.

    Iteration ends after `close`, or when the kind is no longer served. It raises ResourceExpired when the client was so
    slow that the history has moved past its position: over HTTP that is an ERROR event in the stream.
    """

    def __init__(self, store: Store, sight: WatchScope, since: int) -> None:
        self._store = store
        self._sight = sight
        self._shelf = store.watch_cache(sight.served.storage_name)
        self._life = self._shelf.watch_generation
        self._ticks = self._shelf.bookmarks_due
        self._revision = since
        self._initial: deque[StoredObject] = deque()
        self._initial_revision = 0
        self._is_end_announced = False
        self._is_closed = False
        self._waiting: asyncio.Future[None] | None = None

    def send_initial_events(self, *, is_announced: bool) -> None:
        """Start with an ADDED event for every existing object; with `is_announced`, a bookmark follows the last one."""
        shown = (one for one in self._shelf.objects_after(self._sight.namespace, None) if self._sight.includes(one))
        self._initial = deque(shown)
        # Until all initial events are delivered, a client must not resume from this revision.
        self._initial_revision, self._revision = self._store.revision, 0 if self._initial else self._store.revision
        self._is_end_announced = is_announced

    @property
    def resource_version(self) -> str:
        """The version up to which all events have been delivered."""
        return str(self._revision)

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> list[EncodedEvent]:
        while not self._is_closed:
            events = self._ready()
            if events:
                return events
            if self._shelf.watch_generation != self._life:
                break
            if not self._is_behind():
                self._waiting = self._shelf.next_change()
                await self._waiting
        raise StopAsyncIteration

    def bookmark(self) -> EncodedEvent:
        """A BOOKMARK event with `resource_version`, to be sent before a timeout ends the stream."""
        return self._bookmark({})

    def close(self) -> None:
        """End the watch, even while another task waits in `__anext__`."""
        self._is_closed = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _ready(self) -> list[EncodedEvent]:
        if self._initial or self._is_end_announced:
            return self._initial_batch()
        if self._revision < self._shelf.newest_dropped:
            raise errors.too_old(self._revision, self._shelf.newest_dropped)
        changes = self._shelf.changes_after(self._revision)[:_MAX_BATCH]
        events = [event for change in changes for event in self._events(change)]
        self._revision = changes[-1].revision if len(changes) == _MAX_BATCH else self._store.revision
        if self._ticks != self._shelf.bookmarks_due and not self._is_behind():
            self._ticks = self._shelf.bookmarks_due
            if self._sight.has_bookmarks:
                events.append(self._bookmark({}))
        return events

    def _initial_batch(self) -> list[EncodedEvent]:
        some = [self._initial.popleft() for _ in range(min(_MAX_BATCH, len(self._initial)))]
        events = [self._event("ADDED", one.revision, one.body) for one in some]
        if not self._initial:
            self._revision = self._initial_revision
            if self._is_end_announced:
                events.append(self._bookmark({"k8s.io/initial-events-end": "true"}))
                self._is_end_announced = False
        return events

    def _is_behind(self) -> bool:
        return self._revision < self._store.revision

    def _events(self, change: Change) -> Iterator[EncodedEvent]:
        """The event of a change, or none, as a client sees it whose selector hides some objects."""
        state, before = change.state, change.before
        was_seen, is_seen = self._sight.includes(before), not change.is_deletion and self._sight.includes(state)
        if is_seen:
            yield self._event("MODIFIED" if was_seen else "ADDED", state.revision, state.body)
        elif was_seen and change.is_deletion:
            yield self._event("DELETED", state.revision, state.body)
        elif was_seen and before is not None:
            # The object no longer matches: its last matching state, with the revision of this change.
            yield self._event("DELETED", state.revision, with_revision(before.body, before.revision, state.revision))

    def _event(self, kind: EventType, revision: int, body: bytes) -> EncodedEvent:
        return EncodedEvent(kind, str(revision), encode_in_version(body, self._sight.served))

    def _bookmark(self, annotations: dict[str, str]) -> EncodedEvent:
        served = self._sight.served
        metadata = {"resourceVersion": str(self._revision), "creationTimestamp": None}
        thing = {
            "apiVersion": served.api_version,
            "kind": served.kind,
            "metadata": {**metadata, **({"annotations": annotations} if annotations else {})},
        }
        return EncodedEvent("BOOKMARK", str(self._revision), encode(thing))
