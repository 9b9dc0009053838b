"""The thread that writes to disk. It commits everything that was queued during the last commit as one transaction."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tarragon.localcluster.storage.database import Database, HistoryRow, WriteFailedError
from tarragon.localcluster.storage.watch_cache import Change

_MAX_BATCH = 2_000


@dataclass(frozen=True, slots=True, eq=False)
class WriteBatch:
    """Changes to commit, and the future to complete afterwards.

    `epoch` counts the failed commits that were known when the changes were decided. Changes of a failed epoch were
    decided on top of state that was never committed, so they must fail too.
    """

    epoch: int
    rows: Sequence[HistoryRow]
    changes: Sequence[Change]
    done: asyncio.Future[None]

    def finish(self, error: WriteFailedError | None) -> None:
        _finish(self.done, error)


@dataclass(frozen=True, slots=True, eq=False)
class Compaction:
    """Old revisions to drop. No write depends on them."""

    revisions: Sequence[int]
    compacted: int
    done: asyncio.Future[None]


class Writer:
    """Starts its thread on construction. `finish` is called in the event loop, in the order of the commits."""

    def __init__(
        self, database: Database, finish: Callable[[Sequence[WriteBatch], WriteFailedError | None], None]
    ) -> None:
        self._database = database
        self._loop = asyncio.get_running_loop()
        self._finish = finish
        self._work: list[WriteBatch | Compaction] = []
        self._failure: WriteFailedError | None = None
        self._failed_epoch = -1
        self._is_closing = False
        self._wakeup = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="store", daemon=True)
        self._thread.start()

    def add(self, work: WriteBatch | Compaction) -> None:
        with self._wakeup:
            self._work.append(work)
            self._wakeup.notify()

    def close(self) -> None:
        """Commit everything that is queued, and join the thread."""
        with self._wakeup:
            self._is_closing = True
            self._wakeup.notify()
        self._thread.join()

    def _run(self) -> None:
        while work := self._next():
            jobs = [one for one in work if isinstance(one, WriteBatch)]
            self._commit(jobs)
            for one in work:
                if isinstance(one, Compaction):
                    self._forget(one)

    def _next(self) -> list[WriteBatch | Compaction]:
        with self._wakeup:
            while not self._work and not self._is_closing:
                self._wakeup.wait()
            work, self._work = self._work[:_MAX_BATCH], self._work[_MAX_BATCH:]
            return work

    def _commit(self, jobs: Sequence[WriteBatch]) -> None:
        stale = [job for job in jobs if job.epoch <= self._failed_epoch]
        if stale:
            self._loop.call_soon_threadsafe(self._finish, stale, self._failure)
        current = jobs[len(stale) :]  # epochs only grow
        if not current:
            return
        try:
            self._database.append([row for job in current for row in job.rows])
        except WriteFailedError as error:
            self._failure, self._failed_epoch = error, current[-1].epoch
            self._loop.call_soon_threadsafe(self._finish, current, error)
        else:
            self._loop.call_soon_threadsafe(self._finish, current, None)

    def _forget(self, forgetting: Compaction) -> None:
        failure: WriteFailedError | None = None
        try:
            self._database.compact(forgetting.revisions, forgetting.compacted)
        except WriteFailedError as error:
            failure = error
        self._loop.call_soon_threadsafe(_finish, forgetting.done, failure)


def _finish(done: asyncio.Future[None], error: WriteFailedError | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(WriteFailedError(str(error)))
