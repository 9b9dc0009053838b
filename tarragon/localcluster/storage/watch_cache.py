"""The objects of one kind in memory, sorted by key, with the recent changes that watches read."""

from __future__ import annotations

import asyncio
import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from tarragon.localcluster.storage.interning import EncodedPieces, join_pieces, total_bytes

ObjectKey = tuple[str, str]
"""Namespace and name. A plain tuple, because it is hashed and compared very often."""


@dataclass(frozen=True, slots=True, eq=False)
class StoredObject:
    """One revision of one object: its bytes, and the labels and fields that selectors match.

    `written_at` is wall time in seconds. `body` joins the bytes anew at each access, so a caller that needs many bodies
    should read them one after the other.
    """

    key: ObjectKey
    revision: int
    encoded: EncodedPieces
    labels: Mapping[str, str]
    fields: tuple[str, ...]
    written_at: float

    @property
    def body(self) -> bytes:
        return join_pieces(self.encoded)


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """The step from one revision of an object to the next.

    `state` of a deletion is the last state of the object, with the revision of the deletion.
    """

    kind: str
    key: ObjectKey
    before: StoredObject | None
    state: StoredObject
    is_deletion: bool

    @property
    def revision(self) -> int:
        return self.state.revision


_revision = attrgetter("state.revision")
_written = attrgetter("state.written_at")


class WatchCache:
    """The objects of one kind and their recent changes. Callers only read `objects` and `keys` (sorted)."""

    def __init__(self) -> None:
        self.objects: dict[ObjectKey, StoredObject] = {}
        self.keys: list[ObjectKey] = []
        self.watch_generation = 0
        """Incremented when all running watches must end."""
        self.bookmarks_due = 0
        """Incremented when a bookmark is due for the watches that asked for bookmarks."""
        self.newest_dropped = 0
        """The newest revision whose change has been dropped."""
        self._changes: list[Change] = []
        self._waiting: set[asyncio.Future[None]] = set()

    def apply(self, change: Change) -> None:
        """Update `objects` and `keys`. Changes must come in order of revision."""
        if change.is_deletion:
            if self.objects.pop(change.key, None) is not None:
                del self.keys[bisect.bisect_left(self.keys, change.key)]
        else:
            if change.key not in self.objects:
                bisect.insort(self.keys, change.key)
            self.objects[change.key] = change.state

    def append_change(self, change: Change) -> None:
        """Keep a change for watches. Changes must come in order of revision."""
        self._changes.append(change)

    def changes_after(self, revision: int) -> Sequence[Change]:
        """The changes after a revision that are still kept, in order."""
        if not self._changes or self._changes[-1].state.revision <= revision:
            return ()
        return self._changes[bisect.bisect_right(self._changes, revision, key=_revision) :]

    def objects_after(self, namespace: str, after: ObjectKey | None) -> Iterator[StoredObject]:
        """The objects of a namespace whose keys sort after `after`, in order. An empty namespace means all of them."""
        start = bisect.bisect_right(self.keys, after) if after else bisect.bisect_left(self.keys, (namespace, ""))
        for key in self.keys[start:]:
            if namespace and key[0] != namespace:
                return
            yield self.objects[key]

    def snapshot_at(self, revision: int) -> WatchCache:
        """The objects at a revision that is still in the window, rebuilt by undoing the changes after it."""
        changes = self.changes_after(revision)
        if not changes:
            return self
        past = WatchCache()
        past.objects = dict(self.objects)
        for change in reversed(changes):
            if change.before is None:
                past.objects.pop(change.key, None)
            else:
                past.objects[change.key] = change.before
        past.keys = sorted(past.objects)
        return past

    def newest_revision_before(self, moment: float) -> int:
        """The newest kept revision that was written before a wall time in seconds, 0 if there is none."""
        index = bisect.bisect_left(self._changes, moment, key=_written)
        return self._changes[index - 1].state.revision if index else 0

    def change_sizes(self) -> Iterator[tuple[int, int]]:
        """The revision and the size in bytes of each kept change."""
        return ((change.state.revision, total_bytes(change.state.encoded)) for change in self._changes)

    def droppable_revisions(self, until: int) -> list[int]:
        """The revisions on disk that nothing needs once the window starts after `until`.

        For each change that leaves the window, the state before it can be dropped, and so can the row of a deletion.
        The state after a change stays: it is either the object's current state, or its state before its first change
        in the window.
        """
        leaving = self._changes[: bisect.bisect_right(self._changes, until, key=_revision)]
        revisions = [change.before.revision for change in leaving if change.before is not None]
        return revisions + [change.state.revision for change in leaving if change.is_deletion]

    def drop_changes(self, until: int) -> None:
        """Drop the changes up to and including a revision."""
        end = bisect.bisect_right(self._changes, until, key=_revision)
        if end:
            self.newest_dropped = self._changes[end - 1].state.revision
            del self._changes[:end]

    def next_change(self) -> asyncio.Future[None]:
        """A future that is done at the next call of `wake`, which follows each commit."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        return future

    def wake(self) -> None:
        """Complete the futures of all callers that wait for a change."""
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def send_bookmarks(self) -> None:
        """Make watches send a bookmark."""
        self.bookmarks_due += 1
        self.wake()

    def end_watches(self) -> None:
        """End all watches, because the kind is no longer served or the server stops."""
        self.watch_generation += 1
        self.wake()
