"""A running watch: a place in the history of a kind, from which its reader takes what is new.

It holds no queue: however slow its reader is, all it costs is its place. A reader that falls out of the history is
told so and lists anew.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from tarragon.client.port import EventType
from tarragon.kube.codec import encode
from tarragon.localcluster.api import errors
from tarragon.localcluster.api.requests import Event
from tarragon.localcluster.kinds.resource import Served
from tarragon.localcluster.storage.history import Change, Stored
from tarragon.localcluster.storage.objects import in_version, moved
from tarragon.localcluster.storage.selection import Matcher
from tarragon.localcluster.storage.store import Store

_MOST_AT_ONCE = 1_000
"""Changes looked at in one go, so that a long replay does not hold everybody else up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What a watch shows: objects of a kind in one version, of one namespace (empty: all) that match."""

    served: Served
    namespace: str
    matches: Matcher
    has_bookmarks: bool

    def shows(self, stored: Stored | None) -> bool:
        if stored is None or (self.namespace and stored.key[0] != self.namespace):
            return False
        return self.matches(stored)


class Watch:
    """An async iterator over batches of events, each with all that was ready.

    It ends (StopAsyncIteration) after `close`, or when the kind is not served any more. It raises Expired when its
    reader was so slow that the history has moved past it: over HTTP that is an ERROR event in the stream.
    """

    def __init__(self, store: Store, sight: Sight, since: int) -> None:
        self._store = store
        self._sight = sight
        self._shelf = store.shelf(sight.served.shelf)
        self._life = self._shelf.life
        self._ticks = self._shelf.ticks
        self._revision = since
        self._first: deque[Stored] = deque()
        self._begun = 0
        self._announces = False
        self._is_closed = False
        self._waiting: asyncio.Future[None] | None = None

    def begin_with_everything(self, *, is_announced: bool) -> None:
        """Start with an ADDED for every object there is now; a bookmark may announce that these were all."""
        shown = (one for one in self._shelf.between(self._sight.namespace, None) if self._sight.shows(one))
        self._first = deque(shown)
        # Until all of them are handed out, nobody may go on from here.
        self._begun, self._revision = self._store.revision, 0 if self._first else self._store.revision
        self._announces = is_announced

    @property
    def resource_version(self) -> str:
        """The version up to which everything has been handed out."""
        return str(self._revision)

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> list[Event]:
        while not self._is_closed:
            events = self._ready()
            if events:
                return events
            if self._shelf.life != self._life:
                break
            if not self._is_behind():
                self._waiting = self._shelf.changed()
                await self._waiting
        raise StopAsyncIteration

    def bookmark(self) -> Event:
        """A BOOKMARK of `resource_version`, to be sent before a timeout ends the stream."""
        return self._bookmark({})

    def close(self) -> None:
        """End it, also from within another task that waits in `__anext__`."""
        self._is_closed = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _ready(self) -> list[Event]:
        if self._first or self._announces:
            return self._some_of_the_first()
        if self._revision < self._shelf.forgotten:
            raise errors.too_old(self._revision, self._shelf.forgotten)
        changes = self._shelf.since(self._revision)[:_MOST_AT_ONCE]
        events = [event for change in changes for event in self._events(change)]
        self._revision = changes[-1].revision if len(changes) == _MOST_AT_ONCE else self._store.revision
        if self._ticks != self._shelf.ticks and not self._is_behind():
            self._ticks = self._shelf.ticks
            if self._sight.has_bookmarks:
                events.append(self._bookmark({}))
        return events

    def _some_of_the_first(self) -> list[Event]:
        some = [self._first.popleft() for _ in range(min(_MOST_AT_ONCE, len(self._first)))]
        events = [self._event("ADDED", one.revision, one.body) for one in some]
        if not self._first:
            self._revision = self._begun
            if self._announces:
                events.append(self._bookmark({"k8s.io/initial-events-end": "true"}))
                self._announces = False
        return events

    def _is_behind(self) -> bool:
        return self._revision < self._store.revision

    def _events(self, change: Change) -> Iterator[Event]:
        """One or none: what the change is to somebody who sees only what is selected."""
        state, before = change.state, change.before
        was_seen, is_seen = self._sight.shows(before), not change.is_gone and self._sight.shows(state)
        if is_seen:
            yield self._event("MODIFIED" if was_seen else "ADDED", state.revision, state.body)
        elif was_seen and change.is_gone:
            yield self._event("DELETED", state.revision, state.body)
        elif was_seen and before is not None:
            # It is still there but not selected: its last state that was, under the revision that ended it.
            yield self._event("DELETED", state.revision, moved(before.body, before.revision, state.revision))

    def _event(self, kind: EventType, revision: int, body: bytes) -> Event:
        return Event(kind, str(revision), in_version(body, self._sight.served))

    def _bookmark(self, annotations: dict[str, str]) -> Event:
        served = self._sight.served
        metadata = {"resourceVersion": str(self._revision), "creationTimestamp": None}
        thing = {
            "apiVersion": served.api_version,
            "kind": served.kind,
            "metadata": {**metadata, **({"annotations": annotations} if annotations else {})},
        }
        return Event("BOOKMARK", str(self._revision), encode(thing))
