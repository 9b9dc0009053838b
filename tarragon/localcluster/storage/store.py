"""Objects on disk and in memory: every write is durable before it is answered, every read is of what is durable.

One counter numbers all revisions. A write is decided against what is committed or queued before it, so that no
update is lost; it becomes visible when its commit is done. Commits are grouped: while one runs, the next collects.
When one fails, everything queued behind it fails too, for it was decided against what has not happened.
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
from tarragon.localcluster.storage.database import Database, Row, WriteFailedError, moving_away
from tarragon.localcluster.storage.history import Change, ObjectKey, Shelf, Stored
from tarragon.localcluster.storage.interning import Cutter
from tarragon.localcluster.storage.writer import Forgetting, Job, Writer

Json = dict[str, Any]
Indexer = Callable[[str, Json], tuple[Mapping[str, str], tuple[str, ...]]]
"""From a kind's full name and an object to its labels and the fields it can be selected by."""

_FORGET_AT_ONCE = 5_000


@dataclass(frozen=True, slots=True)
class Window:
    """How much history is kept for watches: what is neither older than `seconds` nor more than `revisions` back.

    Of changes with more than `size` bytes together, only the last are kept.
    """

    seconds: float = 300
    revisions: int = 50_000
    size: int = 2**28


DEFAULT_WINDOW = Window()


class Store:
    """All objects of a cluster. Belongs to the thread of its event loop; the disk belongs to a thread of its own."""

    def __init__(self, database: Database, clock: Clock, indexer: Indexer, window: Window) -> None:
        self.applied: Callable[[Change], None] = _ignore
        """Called with every committed change, in order, before anybody is told of it."""
        self._database = database
        self._clock = clock
        self._indexer = indexer
        self._window = window
        self._cutter = Cutter()
        self._shelves: dict[str, Shelf] = {}
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
    async def open(cls, path: Path, clock: Clock, indexer: Indexer, window: Window = DEFAULT_WINDOW) -> Store:
        """Raises TarragonError in the user's words.

        A new store counts from the milliseconds of its birth: to a client that still has a version of a store which
        was deleted, all of its history is too new to go on from, and it lists anew.
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
    def oldest(self) -> int:
        """The revision after which every change is still known."""
        return self._compacted

    def shelf(self, kind: str) -> Shelf:
        """The committed objects of a kind and their recent changes."""
        shelf = self._shelves.get(kind)
        if shelf is None:
            shelf = self._shelves[kind] = Shelf()
        return shelf

    def shelves(self) -> Sequence[Shelf]:
        """Those of all kinds of which there are or were objects."""
        return list(self._shelves.values())

    def latest(self, kind: str, key: ObjectKey) -> Stored | None:
        """The object as it will be when everything queued is committed: what a write must be decided against."""
        queued = self._queued.get((kind, key))
        if queued is None:
            return self.shelf(kind).objects.get(key)
        return None if queued[0].is_gone else queued[0].state

    def latest_of(self, kind: str) -> list[Stored]:
        """All objects of a kind as they will be when everything queued is committed."""
        objects = dict(self.shelf(kind).objects)
        for (other, key), (change, _) in self._queued.items():
            if other == kind:
                if change.is_gone:
                    objects.pop(key, None)
                else:
                    objects[key] = change.state
        return list(objects.values())

    async def settled(self) -> bool:
        """Wait for everything that is queued now; False when some of it has failed, so that decisions must be redone.

        An answer that rests on `latest` without writing anything (a conflict, an unchanged object) must wait for
        this: nobody may be told of what has not happened.
        """
        if not self._queued:
            return True
        waiting = {future for _, future in self._queued.values()}
        await asyncio.wait(waiting)
        return not any(future.exception() for future in waiting)

    def next_revision(self) -> int:
        """The number of the next change. A number may stay unused."""
        self._assigned += 1
        return self._assigned

    def stored(self, kind: str, key: ObjectKey, revision: int, thing: Json, body: bytes) -> Stored:
        """A revision of an object, as a Change has it; `body` is `thing` encoded with that revision in it."""
        labels, fields = self._indexer(kind, thing)
        written = self._clock.now().timestamp()
        before = self.latest(kind, key)
        if before is None:
            return Stored(key, revision, self._cutter.cut(body), labels, fields, written)
        return self._sharing(Stored(key, revision, body, labels, fields, written), before)

    async def commit(self, changes: Sequence[Change]) -> None:
        """Write changes that happen together or not at all, in order of their revisions.

        They are queued before this first waits, and on the disk and visible when it returns. Raises
        WriteFailedError; then nothing of them has happened.
        """
        if self._is_closed:
            raise WriteFailedError("the store is closed")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for change in changes:
            self._queued[change.kind, change.key] = (change, done)
        self._writer.add(Job(self._epoch, [_row(change) for change in changes], changes, done))
        await asyncio.shield(done)

    async def compact(self) -> None:
        """Let go of the history that is out of the window. Raises WriteFailedError."""
        until = self._outdated()
        if until <= self._compacted and not self._orphans:
            return
        superseded = (shelf.superseded(until) for shelf in self._shelves.values())
        forgotten = [*self._orphans, *itertools.chain.from_iterable(superseded)]
        # Watches lose the promise before the disk breaks it. Should the disk fail, the next start finds the orphans.
        self._compacted, self._orphans = max(until, self._compacted), []
        for shelf in self._shelves.values():
            shelf.forget(self._compacted)
        for start in range(0, max(1, len(forgotten)), _FORGET_AT_ONCE):
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._writer.add(Forgetting(forgotten[start : start + _FORGET_AT_ONCE], self._compacted, done))
            await asyncio.shield(done)

    async def close(self) -> None:
        """Commit what is queued, end all watches and let go of the file."""
        # Whoever still writes while everything ends is refused: nobody would ever answer.
        self._is_closed = True
        await asyncio.to_thread(self._writer.close)
        for shelf in self._shelves.values():
            shelf.end_watches()
        self._database.close()

    def _outdated(self) -> int:
        """The newest revision that is out of the window."""
        horizon = self._clock.now().timestamp() - self._window.seconds
        by_age = max((shelf.newest_before(horizon) for shelf in self._shelves.values()), default=0)
        return min(max(by_age, self._committed - self._window.revisions, self._too_much()), self._committed)

    def _too_much(self) -> int:
        """The newest revision at which changes are beyond the size of the window, 0 if none are."""
        sizes = [pair for shelf in self._shelves.values() for pair in shelf.sizes()]
        left = self._window.size - sum(size for _, size in sizes)
        if left >= 0:
            return 0
        for revision, size in sorted(sizes):
            left += size
            if left >= 0:
                return revision
        return self._committed

    def _load(self) -> None:
        living = self._database.living()
        before: dict[tuple[str, ObjectKey], Stored] = {}
        needed = set(living)
        old: list[int] = []
        for row in self._database.rows():
            key = (row.namespace, row.name)
            previous = before.pop((row.kind, key), None)
            state = self._sharing(self._read(row), previous)
            is_remembered = row.revision > self._compacted
            if is_remembered and previous is not None:
                needed.add(previous.revision)
            change = Change(row.kind, key, previous, state, row.is_gone)
            if is_remembered:
                self.shelf(row.kind).remember(change)
            else:
                old.append(row.revision)
            if is_remembered or row.revision in living:
                self.shelf(row.kind).apply(change)
            if not row.is_gone:
                before[row.kind, key] = state
            self._committed = max(self._committed, row.revision)
        self._orphans = [revision for revision in old if revision not in needed]

    def _read(self, row: Row) -> Stored:
        key = (row.namespace, row.name)
        try:
            labels, fields = self._indexer(row.kind, decode(row.body, Json))
        except msgspec.MsgspecError as error:
            raise TarragonError(
                f"the store {self._database.path} is corrupt",
                why=f"revision {row.revision} ({row.kind} {row.namespace}/{row.name}) is not readable: {error}",
                remedy=f"nothing was deleted; to begin anew, move it away: {moving_away(self._database.path)}",
            ) from error
        return Stored(key, row.revision, row.body, labels, fields, row.written)

    def _sharing(self, state: Stored, before: Stored | None) -> Stored:
        """The same revision, holding in common with the one before it, and with other objects, what it can."""
        if before is None:
            return replace(state, held=self._cutter.cut(state.body))
        return Stored(
            before.key,
            state.revision,
            self._cutter.cut(state.body, before.held),
            before.labels if before.labels == state.labels else state.labels,
            before.fields if before.fields == state.fields else state.fields,
            state.written,
        )

    def _finish(self, jobs: Sequence[Job], error: WriteFailedError | None) -> None:
        """Called in the loop's thread, in order of the commits."""
        if error is not None and jobs[-1].epoch == self._epoch:
            # Whatever was queued meanwhile was decided against what has not happened: the writer fails it as well.
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
        shelf = self.shelf(change.kind)
        shelf.apply(change)
        shelf.remember(change)
        self.applied(change)
        self._committed = change.state.revision
        queued = self._queued.get((change.kind, change.key))
        if queued is not None and queued[0] is change:
            del self._queued[change.kind, change.key]


def _ignore(_: Change) -> None:
    pass


def _row(change: Change) -> Row:
    return Row(
        revision=change.state.revision,
        is_gone=change.is_gone,
        kind=change.kind,
        namespace=change.key[0],
        name=change.key[1],
        written=change.state.written,
        body=change.state.body,
    )
