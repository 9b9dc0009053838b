"""The store of all objects, on disk and in memory. Reads only return committed writes, and commits are durable.

One counter numbers all revisions. A write is decided on top of all writes that are committed or queued before it, so
no update is lost; it becomes visible when it is committed. Commits are grouped: writes that arrive during a commit
form the next one. When a commit fails, all writes queued behind it fail too, because they were decided on top of
writes that never happened.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from tarragon.base.clock import Clock
from tarragon.base.errors import TarragonError
from tarragon.kube.codec import decode
from tarragon.localcluster.storage.database import Database, HistoryRow, WriteFailedError, move_away_command
from tarragon.localcluster.storage.interning import ObjectInterner
from tarragon.localcluster.storage.watch_cache import Change, ObjectKey, StoredObject, WatchCache
from tarragon.localcluster.storage.writer import Compaction, WriteBatch, Writer

Json = dict[str, Any]
Indexer = Callable[[str, Json], tuple[Mapping[str, str], tuple[str, ...]]]
"""Maps a kind's full name and an object to the object's labels and the values of its selectable fields."""

_COMPACTION_BATCH = 5_000


@dataclass(frozen=True, slots=True)
class HistoryWindow:
    """How much history is kept for watches: the changes of the last `seconds`, but at most `revisions` of them.

    If their size exceeds `size` bytes in total, the oldest changes are dropped.
    """

    seconds: float = 300
    revisions: int = 50_000
    bytes: int = 2**28


DEFAULT_WINDOW = HistoryWindow()


class Store:
    """All objects of a cluster. Only the thread of its event loop may use it; a writer thread writes to disk."""

    def __init__(self, database: Database, clock: Clock, indexer: Indexer, window: HistoryWindow) -> None:
        self.on_commit: Callable[[Change], None] = _ignore
        """Called with every committed change, in order, before its write is answered and watches wake up."""
        self._database = database
        self._clock = clock
        self._indexer = indexer
        self._window = window
        self._cutter = ObjectInterner()
        self._shelves: dict[str, WatchCache] = {}
        self._queued: dict[tuple[str, ObjectKey], tuple[Change, asyncio.Future[None]]] = {}
        self._compacted = database.compacted
        self._committed = self._compacted
        self._orphans: list[int] = []
        self._load()
        self._assigned = self._committed
        self._epoch = 0
        self._writer = Writer(database, self._finish)
        self._is_closed = False

    @classmethod
    async def open(cls, path: Path, clock: Clock, indexer: Indexer, window: HistoryWindow = DEFAULT_WINDOW) -> Store:
        """Open the store, creating it if needed. Raises TarragonError with a message for users.

        The first revision of a new store is the current time in milliseconds. A client that still has a version of a
        deleted store is therefore behind the history of the new one, and lists again.
        """
        database = Database.open(path, int(clock.now().timestamp() * 1000))
        try:
            return cls(database, clock, indexer, window)
        except BaseException:
            database.close()
            raise

    @property
    def path(self) -> Path:
        return self._database.path

    @property
    def revision(self) -> int:
        """The newest committed revision."""
        return self._committed

    @property
    def oldest_revision(self) -> int:
        """The oldest revision at which a watch can start: all changes after it are kept."""
        return self._compacted

    def watch_cache(self, kind: str) -> WatchCache:
        """The committed objects of a kind and their recent changes; created empty for a kind without objects."""
        shelf = self._shelves.get(kind)
        if shelf is None:
            shelf = self._shelves[kind] = WatchCache()
        return shelf

    def watch_caches(self) -> Sequence[WatchCache]:
        """The shelves of all kinds that have or had objects."""
        return list(self._shelves.values())

    def pending_state(self, kind: str, key: ObjectKey) -> StoredObject | None:
        """The object after all queued writes are committed; a new write must be decided on top of this state."""
        queued = self._queued.get((kind, key))
        if queued is None:
            return self.watch_cache(kind).objects.get(key)
        return None if queued[0].is_deletion else queued[0].state

    def pending_states(self, kind: str) -> list[StoredObject]:
        """All objects of a kind after all queued writes are committed."""
        objects = dict(self.watch_cache(kind).objects)
        for (other, key), (change, _) in self._queued.items():
            if other == kind:
                if change.is_deletion:
                    objects.pop(key, None)
                else:
                    objects[key] = change.state
        return list(objects.values())

    async def wait_for_queued(self) -> bool:
        """Wait for all writes that are queued now. False if one failed, so that the caller must decide again.

        A request that is answered from `pending_state` without a write (a conflict, an unchanged object) must wait for
        this, because an answer must not show a write that may still fail.
        """
        if not self._queued:
            return True
        waiting = {future for _, future in self._queued.values()}
        await asyncio.wait(waiting)
        return not any(future.exception() for future in waiting)

    def next_revision(self) -> int:
        """The revision of the next change. Revisions may stay unused."""
        self._assigned += 1
        return self._assigned

    def new_revision(self, kind: str, key: ObjectKey, revision: int, thing: Json, body: bytes) -> StoredObject:
        """A revision of an object for a Change. `body` is `thing`, encoded with that revision."""
        labels, fields = self._indexer(kind, thing)
        written = self._clock.now().timestamp()
        before = self.pending_state(kind, key)
        if before is None:
            return StoredObject(key, revision, self._cutter.intern(body), labels, fields, written)
        return self._interned(StoredObject(key, revision, body, labels, fields, written), before)

    async def commit(self, changes: Sequence[Change]) -> None:
        """Write changes as one transaction, in order of their revisions.

        They are queued before this coroutine first suspends, and durable and visible when it returns. Raises
        WriteFailedError; then none of the changes has happened.
        """
        if self._is_closed:
            raise WriteFailedError("the store is closed")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for change in changes:
            self._queued[change.kind, change.key] = (change, done)
        self._writer.add(WriteBatch(self._epoch, [_row(change) for change in changes], changes, done))
        await asyncio.shield(done)

    async def compact(self) -> None:
        """Drop the history that is outside the window. Raises WriteFailedError."""
        until = self._outdated()
        if until <= self._compacted and not self._orphans:
            return
        superseded = (shelf.droppable_revisions(until) for shelf in self._shelves.values())
        forgotten = [*self._orphans, *itertools.chain.from_iterable(superseded)]
        # Memory first, so that no watch relies on rows that are being deleted. What a failed write leaves on disk is
        # found at the next start.
        self._compacted, self._orphans = max(until, self._compacted), []
        for shelf in self._shelves.values():
            shelf.drop_changes(self._compacted)
        for start in range(0, max(1, len(forgotten)), _COMPACTION_BATCH):
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._writer.add(Compaction(forgotten[start : start + _COMPACTION_BATCH], self._compacted, done))
            await asyncio.shield(done)

    async def close(self) -> None:
        """Commit all queued writes, end all watches and close the file."""
        # Later writes are rejected, because the writer thread is gone and they would wait for ever.
        self._is_closed = True
        await asyncio.to_thread(self._writer.close)
        for shelf in self._shelves.values():
            shelf.end_watches()
        self._database.close()

    def _outdated(self) -> int:
        """The newest revision that is outside the window."""
        horizon = self._clock.now().timestamp() - self._window.seconds
        by_age = max((shelf.newest_revision_before(horizon) for shelf in self._shelves.values()), default=0)
        return min(max(by_age, self._committed - self._window.revisions, self._outside_size()), self._committed)

    def _outside_size(self) -> int:
        """The newest revision that must go to bring the history down to the size of the window, 0 if none must."""
        sizes = [pair for shelf in self._shelves.values() for pair in shelf.change_sizes()]
        left = self._window.bytes - sum(size for _, size in sizes)
        if left >= 0:
            return 0
        for revision, size in sorted(sizes):
            left += size
            if left >= 0:
                return revision
        return self._committed

    def _load(self) -> None:
        living = self._database.current_revisions()
        before: dict[tuple[str, ObjectKey], StoredObject] = {}
        needed = set(living)
        old: list[int] = []
        for row in self._database.rows():
            key = (row.namespace, row.name)
            previous = before.pop((row.kind, key), None)
            state = self._interned(self._read(row), previous)
            is_remembered = row.revision > self._compacted
            if is_remembered and previous is not None:
                needed.add(previous.revision)
            change = Change(row.kind, key, previous, state, row.is_deletion)
            if is_remembered:
                self.watch_cache(row.kind).append_change(change)
            else:
                old.append(row.revision)
            if is_remembered or row.revision in living:
                self.watch_cache(row.kind).apply(change)
            if not row.is_deletion:
                before[row.kind, key] = state
            self._committed = max(self._committed, row.revision)
        self._orphans = [revision for revision in old if revision not in needed]

    def _read(self, row: HistoryRow) -> StoredObject:
        key = (row.namespace, row.name)
        try:
            labels, fields = self._indexer(row.kind, decode(row.body, Json))
        except msgspec.MsgspecError as error:
            raise TarragonError(
                f"the store {self._database.path} is corrupt",
                why=f"revision {row.revision} ({row.kind} {row.namespace}/{row.name}) is not readable: {error}",
                remedy="nothing was deleted; to start with an empty store, move this one away: "
                f"{move_away_command(self._database.path)}",
            ) from error
        return StoredObject(key, row.revision, row.body, labels, fields, row.written)

    def _interned(self, state: StoredObject, before: StoredObject | None) -> StoredObject:
        """The same revision, sharing memory with the revision before it and with other objects."""
        if before is None:
            return replace(state, encoded=self._cutter.intern(state.body))
        return StoredObject(
            before.key,
            state.revision,
            self._cutter.intern(state.body, before.encoded),
            before.labels if before.labels == state.labels else state.labels,
            before.fields if before.fields == state.fields else state.fields,
            state.written_at,
        )

    def _finish(self, jobs: Sequence[WriteBatch], error: WriteFailedError | None) -> None:
        """Publish finished jobs. Called in the event loop, in order of the commits."""
        if error is not None and jobs[-1].epoch == self._epoch:
            # Writes queued since then were decided on top of writes that never happened: the writer fails them too.
            self._epoch += 1
            self._queued.clear()
        touched: set[str] = set()
        for job in jobs:
            if error is None:
                for change in job.changes:
                    self._apply(change)
                    touched.add(change.kind)
            job.finish(error)
        for kind in touched:
            self._shelves[kind].wake()

    def _apply(self, change: Change) -> None:
        shelf = self.watch_cache(change.kind)
        shelf.apply(change)
        shelf.append_change(change)
        self.on_commit(change)
        self._committed = change.state.revision
        queued = self._queued.get((change.kind, change.key))
        if queued is not None and queued[0] is change:
            del self._queued[change.kind, change.key]


def _ignore(_: Change) -> None:
    pass


def _row(change: Change) -> HistoryRow:
    return HistoryRow(
        revision=change.state.revision,
        is_deletion=change.is_deletion,
        kind=change.kind,
        namespace=change.key[0],
        name=change.key[1],
        written=change.state.written_at,
        body=change.state.body,
    )
