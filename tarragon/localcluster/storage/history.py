"""The objects of one kind in memory, in order, with the changes that watches may still ask for."""

from __future__ import annotations

import asyncio
import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from tarragon.localcluster.storage.interning import Held, length, whole

ObjectKey = tuple[str, str]
"""Namespace and name. A plain tuple, as it is hashed and compared all the time."""


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """One revision of one object: its bytes, and what selectors need of it. `written` is wall time in seconds.

    The bytes are put together whenever somebody asks for them: whoever needs many does so one after the other.
    """

    key: ObjectKey
    revision: int
    held: Held
    labels: Mapping[str, str]
    fields: tuple[str, ...]
    written: float

    @property
    def body(self) -> bytes:
        return whole(self.held)


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """From one revision to the next. Of a deletion, `state` is the last state under the deletion's revision."""

    kind: str
    key: ObjectKey
    before: Stored | None
    state: Stored
    is_gone: bool

    @property
    def revision(self) -> int:
        return self.state.revision


_revision = attrgetter("state.revision")
_written = attrgetter("state.written")


class Shelf:
    """The objects of one kind. `objects` and `keys` (sorted) are for reading only."""

    def __init__(self) -> None:
        self.objects: dict[ObjectKey, Stored] = {}
        self.keys: list[ObjectKey] = []
        self.life = 0
        """Moves on when all running watches must end."""
        self.ticks = 0
        """Moves on when watches that want bookmarks are due one."""
        self.forgotten = 0
        """The newest revision whose change is not remembered any more."""
        self._changes: list[Change] = []
        self._waiting: set[asyncio.Future[None]] = set()

    def apply(self, change: Change) -> None:
        """Take a change over, in order of revisions."""
        if change.is_gone:
            if self.objects.pop(change.key, None) is not None:
                del self.keys[bisect.bisect_left(self.keys, change.key)]
        else:
            if change.key not in self.objects:
                bisect.insort(self.keys, change.key)
            self.objects[change.key] = change.state

    def remember(self, change: Change) -> None:
        """Keep a change for watches, in order of revisions."""
        self._changes.append(change)

    def since(self, revision: int) -> Sequence[Change]:
        """The remembered changes after a revision, in order."""
        if not self._changes or self._changes[-1].state.revision <= revision:
            return ()
        return self._changes[bisect.bisect_right(self._changes, revision, key=_revision) :]

    def between(self, namespace: str, after: ObjectKey | None) -> Iterator[Stored]:
        """The objects of a namespace (all of them when it is empty) whose keys come after `after`, in order."""
        start = bisect.bisect_right(self.keys, after) if after else bisect.bisect_left(self.keys, (namespace, ""))
        for key in self.keys[start:]:
            if namespace and key[0] != namespace:
                return
            yield self.objects[key]

    def at(self, revision: int) -> Shelf:
        """The objects as they were at a revision that is still in the window."""
        changes = self.since(revision)
        if not changes:
            return self
        past = Shelf()
        past.objects = dict(self.objects)
        for change in reversed(changes):
            if change.before is None:
                past.objects.pop(change.key, None)
            else:
                past.objects[change.key] = change.before
        past.keys = sorted(past.objects)
        return past

    def newest_before(self, moment: float) -> int:
        """The newest remembered revision that was written before a moment, 0 if there is none."""
        index = bisect.bisect_left(self._changes, moment, key=_written)
        return self._changes[index - 1].state.revision if index else 0

    def sizes(self) -> Iterator[tuple[int, int]]:
        """The revisions of the remembered changes, and the bytes of each."""
        return ((change.state.revision, length(change.state.held)) for change in self._changes)

    def superseded(self, until: int) -> list[int]:
        """The revisions on disk that nothing needs once the window starts after `until`.

        Of every change that leaves the window, the state before it goes, and a deletion goes itself. Its own state
        stays: it is either the living one, or what the object was before its first change in the window.
        """
        leaving = self._changes[: bisect.bisect_right(self._changes, until, key=_revision)]
        revisions = [change.before.revision for change in leaving if change.before is not None]
        return revisions + [change.state.revision for change in leaving if change.is_gone]

    def forget(self, until: int) -> None:
        """Drop the changes up to a revision."""
        end = bisect.bisect_right(self._changes, until, key=_revision)
        if end:
            self.forgotten = self._changes[end - 1].state.revision
            del self._changes[:end]

    def changed(self) -> asyncio.Future[None]:
        """Done at the next change, or when somebody calls `wake`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        return future

    def wake(self) -> None:
        """Make all who wait for a change look."""
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def tick(self) -> None:
        """Let watches send a bookmark."""
        self.ticks += 1
        self.wake()

    def end_watches(self) -> None:
        """The kind is not served any more, or the server ends."""
        self.life += 1
        self.wake()
