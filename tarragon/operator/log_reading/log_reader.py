"""Reads the logs of jobs that run and report nothing, and writes the progress that they print into their statuses.

Each read is one request for the last lines of one pod: that of the replica that decides the job. Requests are spaced,
so that they are bounded however many jobs run; jobs take turns. A job whose log shows no progress is read ever more
seldom. Nothing is kept that matters: a new leader reads the tails of the logs again.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import aclosing
from dataclasses import dataclass, field, replace

import structlog

from tarragon.base.clock import Clock
from tarragon.client.errors import ApiError, Conflict, Forbidden
from tarragon.client.port import Client, LogOptions
from tarragon.client.wakeup import WakeupSignal
from tarragon.job.log_progress import LogProgress
from tarragon.job.phase import Phase
from tarragon.job.progress import LOG_YIELDS_SECONDS, Progress, Source, is_from_future, merge, progress_patch
from tarragon.job.status import JobStatus
from tarragon.job.status_encoding import recorded_status
from tarragon.kube.core import Pod
from tarragon.kube.meta import CustomObject, Key
from tarragon.operator.informers.informers import Informers
from tarragon.operator.log_reading.log_window import LogCursor, new_lines
from tarragon.plan.status.patch import precondition

JobId = tuple[str, Key]
log = structlog.get_logger(__name__)

TAIL_LINES = 200
"""The lines of one request: more than programs print between two reads, apart from those that print each step."""
MAX_BYTES = 1024 * 1024
"""The bytes of one request. Lines have no bound: a bar may be one line of megabytes."""
KEPT_BYTES = 128 * 1024
CLOCK_SKEW_SECONDS = 30
"""The clocks of a node and of the operator may differ so much without lines being missed."""
REQUEST_SECONDS = 10.0
MISSES_UNTIL_SLOWER = 10
"""After so many reads without any progress, a log is read half as often."""
SLOWEST = 16
"""The factor by which the time between two reads of one log grows at most."""
CHANGES_AT_ONCE = 100
"""Changed jobs that are looked at before the event loop runs other tasks."""
FORBIDDEN_SECONDS = 600.0
CONFLICT_SECONDS = 1.0
"""After this time a log is read again whose job changed while it was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReadingOptions:
    """Which logs are read, and how often."""

    is_for_elastic_jobs_only: bool
    seconds_between: float
    """The least time between two reads of one job's log."""
    reads_per_minute: int
    """The most reads of all logs together."""


EMBEDDED_LOG_READING = LogReadingOptions(is_for_elastic_jobs_only=False, seconds_between=5.0, reads_per_minute=600)
"""On the embedded cluster a log is a file of this machine."""
CLUSTER_LOG_READING = LogReadingOptions(is_for_elastic_jobs_only=True, seconds_between=60.0, reads_per_minute=60)
"""On a cluster each read passes the API server and a kubelet. The scheduler needs it of elastic jobs only."""


@dataclass(slots=True)
class _OpenLog:
    """The log of a job that runs, as far as it was read."""

    pod_uid: str = ""
    cursor: LogCursor = field(default_factory=LogCursor)
    found: LogProgress = field(default_factory=LogProgress)
    read_at: float | None = None
    """The monotonic time of the last read."""
    next_read: float = 0.0
    misses: int = 0


class LogReader:
    """Reads while `run` is running, which is to be the leader's alone."""

    def __init__(self, cluster: Client, clock: Clock, informers: Informers, options: LogReadingOptions) -> None:
        self._cluster = cluster
        self._clock = clock
        self._informers = informers
        self._options = options
        self._wakeup = WakeupSignal(clock)
        self._changed: dict[JobId, None] = {}
        self._logs: dict[JobId, _OpenLog] = {}
        self._paused_until = -math.inf
        """The monotonic time until which nothing is read, because it was forbidden."""

    def job_changed(self, job: JobId) -> None:
        self._changed[job] = None
        self._wakeup.set()

    def look_at_all(self) -> None:
        """Look at all jobs, as a new leader has to."""
        for framework, found in self._informers.all_jobs():
            self.job_changed((framework.kind, found.metadata.key))

    def forget(self, job: JobId) -> None:
        """The job was deleted."""
        self._changed.pop(job, None)
        self._logs.pop(job, None)

    async def run(self) -> None:
        """Read until cancelled."""
        spacing = 60.0 / self._options.reads_per_minute
        while True:
            await self._wakeup.wait(self._seconds_until_due())
            self._wakeup.clear()
            self._look_at_changes()
            job = self._due()
            if job is not None:
                await self._read(job)
            await self._clock.sleep(spacing)

    def _seconds_until_due(self) -> float | None:
        if self._changed:
            return 0.0
        if not self._logs:
            return None
        due = max(self._paused_until, min(each.next_read for each in self._logs.values()))
        return max(0.0, due - self._clock.monotonic())

    def _due(self) -> JobId | None:
        now = self._clock.monotonic()
        first = min(self._logs, key=lambda job: self._logs[job].next_read, default=None)
        is_due = first is not None and max(self._paused_until, self._logs[first].next_read) <= now
        return first if is_due else None

    def _look_at_changes(self) -> None:
        for job in list(self._changed)[:CHANGES_AT_ONCE]:
            del self._changed[job]
            found = self._informers.jobs[job[0]].objects.get(job[1])
            status = None if found is None else recorded_status(found)
            if found is None or status is None or not self._is_wanted(job[0], found, status):
                self._finish(job, status)
            else:
                self._logs.setdefault(job, _OpenLog())

    def _is_wanted(self, kind: str, found: CustomObject, status: JobStatus) -> bool:
        if status.phase is not Phase.RUNNING:
            return False
        if not self._options.is_for_elastic_jobs_only:
            return True
        job = self._informers.decode_cache.decoded(kind, found).job
        return job is not None and job.elastic_policy is not None

    def _finish(self, job: JobId, status: JobStatus | None) -> None:
        """Read the log of a job that has just succeeded once more, as its last lines may not have been read."""
        opened = self._logs.get(job)
        if opened is not None and status is not None and status.phase is Phase.SUCCEEDED and opened.pod_uid:
            opened.next_read = self._clock.monotonic()
        else:
            self._logs.pop(job, None)

    async def _read(self, job: JobId) -> None:
        kind, key = job
        opened, found = self._logs[job], self._informers.jobs[kind].objects.get(key)
        pod = None if found is None else self._leading_pod(kind, found)
        status = None if found is None else recorded_status(found)
        if found is None or status is None or status.phase.is_final:
            self._logs.pop(job, None)
        self._plan_next(opened)
        if found is None or status is None or pod is None or self._reports(status.progress):
            return
        try:
            progress = await self._progress_in(opened, kind, found, pod)
            opened.misses = 0 if progress is not None else opened.misses + 1
            await self._write(kind, found, progress)
        except Conflict:
            opened.next_read = self._clock.monotonic() + CONFLICT_SECONDS
            self._logs[job] = opened
        except Forbidden as error:
            log.warning("logs can't be read; grant `get` of pods/log to read the progress in them", error=str(error))
            self._paused_until = self._clock.monotonic() + FORBIDDEN_SECONDS
        except (ApiError, TimeoutError) as error:
            log.debug("a log was not read", pod=str(pod.metadata.key), error=str(error))

    def _plan_next(self, opened: _OpenLog) -> None:
        slower = min(SLOWEST, 2 ** (opened.misses // MISSES_UNTIL_SLOWER))
        opened.next_read = self._clock.monotonic() + self._options.seconds_between * slower

    def _reports(self, progress: Progress | None) -> bool:
        """Whether the program itself reports: then what it prints would not count."""
        if progress is None or progress.source is not Source.REPORT or progress.is_of_earlier_pod:
            return False
        now = self._clock.now()
        is_young = (now - progress.updated_at).total_seconds() < LOG_YIELDS_SECONDS
        return is_young and not is_from_future(progress, now)

    def _leading_pod(self, kind: str, found: CustomObject) -> Pod | None:
        """Return the pod of the replica that decides the job: programs print their progress there."""
        decoded = self._informers.decode_cache.decoded(kind, found)
        chief = None if decoded.job is None else decoded.job.chief
        if decoded.job is None or decoded.dialect is None or chief is None:
            return None
        names = decoded.dialect.names
        pods = [pod for pod in self._informers.pods_of(found) if pod.status.phase in {"Running", "Succeeded"}]
        return next((pod for pod in pods if names.replica_of(decoded.job, pod.metadata.name) == chief), None)

    async def _progress_in(self, opened: _OpenLog, kind: str, found: CustomObject, pod: Pod) -> Progress | None:
        framework, job = self._informers.frameworks[kind], self._informers.decode_cache.decoded(kind, found).job
        if opened.pod_uid != pod.metadata.uid:
            opened.pod_uid, opened.read_at = pod.metadata.uid, None
            opened.cursor = LogCursor()
            opened.found = LogProgress(bars_sum_metrics=job is not None and framework.bars_sum_metrics(job))
        text = await self._tail(opened, framework.main_container, pod)
        new = new_lines(text, opened.cursor)
        opened.cursor, opened.found = new.cursor, opened.found.after(new.lines)
        whole = opened.found.after([new.unfinished], is_cut=True) if new.unfinished else opened.found
        return whole.progress(self._clock.now(), pod.metadata.uid)

    async def _tail(self, opened: _OpenLog, container: str, pod: Pod) -> bytes:
        now = self._clock.monotonic()
        since = None if opened.read_at is None else int(now - opened.read_at) + CLOCK_SKEW_SECONDS
        options = LogOptions(
            container=_container(pod, container), timestamps=True, tail_lines=TAIL_LINES, since_seconds=since
        )
        text, size = b"", 0
        async with asyncio.timeout(REQUEST_SECONDS):
            async with aclosing(self._cluster.pod_log(pod.metadata.key, options)) as chunks:  # type: ignore[type-var]
                async for chunk in chunks:
                    text, size = (text + chunk)[-KEPT_BYTES:], size + len(chunk)
                    if size >= MAX_BYTES:
                        break
        opened.read_at = now
        return text

    async def _write(self, kind: str, found: CustomObject, progress: Progress | None) -> None:
        """Record the progress unless what is on record is better. Raises Conflict if the job has changed meanwhile."""
        job = self._informers.jobs[kind].objects.get(found.metadata.key)
        if progress is None or job is None or job.metadata.uid != found.metadata.uid:
            return
        recorded = recorded_status(job).progress
        merged = merge(recorded, progress)
        if merged is None or (recorded is not None and _says_the_same(merged, recorded)):
            return
        patch = {"metadata": precondition(job), **progress_patch(merged)}
        await self._cluster.patch(self._informers.jobs[kind].resource, job.metadata.key, patch, subresource="status")


def _container(pod: Pod, main: str) -> str:
    names = [container.name for container in pod.spec.containers]
    return main if main in names or not names else names[0]


def _says_the_same(one: Progress, other: Progress) -> bool:
    """Whether a write would change nothing but the time."""
    return replace(one, updated_at=other.updated_at, remaining_seconds=other.remaining_seconds) == other
