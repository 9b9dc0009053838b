"""Writes progress into the status of jobs: seldom for each job, few a second in all, and always the newest.

What is not written yet waits here, at most one report a job. A process that ends loses it, and the next report of the
program makes up for that.
"""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass, replace

import structlog

from tarragon.base.clock import Clock
from tarragon.client.errors import ApiError, Conflict, Invalid, NotFound
from tarragon.client.port import Client
from tarragon.client.wakeup import WakeupSignal
from tarragon.job.phase import Phase
from tarragon.job.progress import Progress, decode_progress, is_overtaken, merge, progress_patch
from tarragon.job.status_encoding import status_of
from tarragon.kube.meta import CustomObject, Json, Key
from tarragon.operator.informers.informers import Informers
from tarragon.operator.metrics.meter import Meter
from tarragon.plan.status.patch import precondition, tarragon_of

SECONDS_BETWEEN = 10.0
"""The least time between two writes of one job's progress."""
CONFLICT_SECONDS = 1.0
"""A write that did not have the job's newest version is due again after this time, or when the watch has it."""
WRITE_SPACING = 0.05
"""Seconds between two writes: at most twenty a second, however many jobs report. 10,000 jobs take turns in 500 s."""
HEAD_START = 60.0
"""How many seconds of a backlog the end of a training overtakes."""
MAX_REMEMBERED = 20_000

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pending:
    kind: str
    job: CustomObject
    """As it was when the report arrived."""
    progress: Progress
    is_repeated: bool = False
    """Whether it was tried before, with an outdated version of the job."""


class ProgressWriter:
    """Writes what `submit` is given, while `run` is running."""

    def __init__(self, cluster: Client, clock: Clock, informers: Informers, meter: Meter) -> None:
        self._cluster = cluster
        self._clock = clock
        self._informers = informers
        self._meter = meter
        self._wakeup = WakeupSignal(clock)
        self._pending: dict[str, _Pending] = {}
        """By UID of the job."""
        self._due_of: dict[str, float] = {}
        """When each of these is written."""
        self._due: list[tuple[float, int, str]] = []
        """The same as a heap, which also has times that do not count any more."""
        self._order = itertools.count()
        self._newest: dict[str, Progress] = {}
        """By UID of the job, what was submitted last: the cache does not have it before it is written."""
        self._next_write: dict[str, float] = {}
        self._next_haste: dict[str, float] = {}
        self._outdated: dict[str, float] = {}
        """When to write again, by UID, once the cache has a newer version of the job than at the last try."""
        for cache in informers.jobs.values():
            cache.add_event_handler(self._job_changed)

    def submit(self, kind: str, job: CustomObject, found: Progress) -> None:
        """Write this progress of the job soon, unless what is recorded is better or something newer comes before."""
        uid = job.metadata.uid
        merged = merge(self._newest_of(job), found)
        if merged is None:
            return
        self._remember(uid, merged)
        self._pending[uid] = _Pending(kind=kind, job=job, progress=merged)
        if merged.is_complete or _is_over(job):
            self._hasten(uid)
        self._schedule(uid, self._next_write.get(uid, 0.0))

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._wakeup.wait(self._seconds_until_due())
            self._wakeup.clear()
            while self._due and self._due[0][0] <= self._clock.monotonic():
                due, _, uid = heapq.heappop(self._due)
                if self._due_of.get(uid) == due:
                    del self._due_of[uid]
                    await self._write(self._pending.pop(uid), due)
                    await self._clock.sleep(WRITE_SPACING)

    def _newest_of(self, job: CustomObject) -> Progress | None:
        newest, recorded = self._newest.get(job.metadata.uid), recorded_progress(job)
        if newest is None or recorded is None:
            return newest or recorded
        return newest if newest.updated_at >= recorded.updated_at else recorded

    def _remember(self, uid: str, progress: Progress) -> None:
        self._newest[uid] = progress
        while len(self._newest) > MAX_REMEMBERED:
            forgotten = next(iter(self._newest))
            self._forget(forgotten)

    def _forget(self, uid: str) -> None:
        for each in (self._newest, self._next_write, self._next_haste, self._outdated):
            each.pop(uid, None)

    def _job_changed(self, _: Key, __: CustomObject | None, job: CustomObject | None) -> None:
        if job is None or job.metadata.uid not in self._pending:
            return
        uid = job.metadata.uid
        due = self._outdated.pop(uid, None)
        if due is not None:
            self._schedule(uid, due)
        if _is_over(job):
            self._hasten(uid)

    def _hasten(self, uid: str) -> None:
        """Write before most others: at the end of a job many look at it.

        This happens as seldom as other writes, whatever a program says, and others get their turn all the same.
        """
        now = self._clock.monotonic()
        if now >= self._next_haste.get(uid, now):
            self._next_haste[uid] = now + SECONDS_BETWEEN
            self._schedule(uid, now - HEAD_START)

    def _schedule(self, uid: str, due: float) -> None:
        if due >= self._due_of.get(uid, math.inf):
            return
        self._due_of[uid] = due
        heapq.heappush(self._due, (due, next(self._order), uid))
        self._wakeup.set()

    def _seconds_until_due(self) -> float | None:
        return max(0.0, self._due[0][0] - self._clock.monotonic()) if self._due else None

    async def _write(self, pending: _Pending, due: float) -> None:
        resource, uid = self._informers.jobs[pending.kind].resource, pending.job.metadata.uid
        self._outdated.pop(uid, None)
        job = self._informers.jobs[pending.kind].objects.get(pending.job.metadata.key, pending.job)
        if job.metadata.uid != uid:
            self._give_up(uid)
            return
        recorded = recorded_progress(job)
        if recorded is not None and is_overtaken(pending.progress, recorded):
            return  # another replica of the operator has recorded something newer meanwhile
        self._next_write[uid] = self._clock.monotonic() + SECONDS_BETWEEN
        try:
            patch = {"metadata": precondition(job), **progress_patch(pending.progress)}
            await self._cluster.patch(resource, job.metadata.key, patch, subresource="status")
        except (NotFound, Invalid):  # the job is gone
            self._give_up(uid)
        except Conflict:
            self._meter.progress_written("conflict")
            self._repeat_when_current(pending, job, due)
        except ApiError as error:
            name = str(job.metadata.key)
            log.warning("progress was not written; the next report makes up for it", job=name, error=str(error))
            self._meter.progress_written("error")
            self._repeat(pending, self._next_write[uid])
        else:
            self._meter.progress_written("written")

    def _repeat_when_current(self, pending: _Pending, outdated: CustomObject, due: float) -> None:
        """Repeat the write when the cache has a newer version of the job than the one that was outdated.

        It keeps its turn, but only once: a job that changes all the time must not always come first.
        """
        now, uid = self._clock.monotonic(), outdated.metadata.uid
        due = now if pending.is_repeated else due
        current = self._informers.jobs[pending.kind].objects.get(outdated.metadata.key, outdated)
        if current.metadata.resource_version == outdated.metadata.resource_version:
            self._outdated[uid] = due
            due = now + CONFLICT_SECONDS
        self._repeat(replace(pending, is_repeated=True), due)

    def _repeat(self, pending: _Pending, due: float) -> None:
        uid = pending.job.metadata.uid
        self._pending.setdefault(uid, pending)
        self._schedule(uid, due)

    def _give_up(self, uid: str) -> None:
        """The job is gone, or another one of its name exists."""
        self._forget(uid)
        self._meter.progress_written("gone")


def _is_over(job: CustomObject) -> bool:
    return tarragon_of(status_of(job)).get("state") in {Phase.SUCCEEDED, Phase.FAILED}


def recorded_progress(job: CustomObject) -> Progress | None:
    """Return the progress in the job's status; None if there is none that can be read."""
    status = status_of(job)
    ours: Json = tarragon_of(status).get("progress")
    try:
        return None if ours is None else decode_progress(ours, status.get("trainerStatus"))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
