"""Takes due jobs from the work queue and reconciles each in its own task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog
from structlog.contextvars import bind_contextvars

from tarragon.client.errors import ApiError, Conflict
from tarragon.client.leader_election import LeaseLost
from tarragon.client.wakeup import WakeupSignal
from tarragon.client.workqueue import WorkQueue
from tarragon.kube.meta import Key
from tarragon.operator.informers.informers import Informers
from tarragon.operator.metrics.definitions import UNEXPECTED_ERROR
from tarragon.operator.metrics.meter import Meter
from tarragon.operator.reconciler.apply import ApplyContext
from tarragon.operator.reconciler.reconcile import reconcile
from tarragon.operator.reconciler.watchdog import MAX_IDLE_SECONDS, Watchdog

MAX_CONCURRENT_RECONCILES = 16
"""Maximum number of concurrent reconciles."""

BURST_SECONDS = 0.02
"""Changes of a job's pods come in bursts, one gang at a time: the first one counts at once, and those that come within
this time of a reconcile count together.
"""

JobId = tuple[str, Key]
log = structlog.get_logger(__name__)


class Worker:
    """Reconciles queued jobs: call `start`, then `run`, which returns after `stop`."""

    def __init__(self, context: ApplyContext, informers: Informers, meter: Meter) -> None:
        self.queue: WorkQueue[JobId] = WorkQueue()
        self._context = context
        self._informers = informers
        self._meter = meter
        self._clock = context.clock
        self._wakeup = WakeupSignal(context.clock)
        self._watchdog = Watchdog(context.clock)
        self._finished_at: dict[JobId, float] = {}
        """When the reconciles of the last BURST_SECONDS finished, in order."""

    def add(self, job: JobId, delay: float) -> None:
        """Queue the job to be reconciled after this many seconds."""
        self.queue.add(job, self._clock.monotonic() + delay)
        self._wakeup.set()

    def add_in_burst(self, job: JobId) -> None:
        """Queue the job to be reconciled at once, or soon if it was just reconciled or still is."""
        now = self._clock.monotonic()
        while self._finished_at and next(iter(self._finished_at.values())) <= now - BURST_SECONDS:
            del self._finished_at[next(iter(self._finished_at))]
        since = now if self.queue.is_in_progress(job) else self._finished_at.get(job)
        self.add(job, 0.0 if since is None else since + BURST_SECONDS - now)

    def start(self) -> None:
        """Start to watch that due jobs are taken."""
        self._watchdog.start()

    def stop(self) -> None:
        """Start no more reconciles."""
        self._wakeup.shut_down()

    def restart_reasons(self) -> Sequence[str]:
        """Reasons to restart the process: reconciles or a queue that made no progress for too long."""
        reasons = [*self._watchdog.overdue()]
        idle = self._watchdog.idle_seconds(self.queue.next_due())
        if self._watchdog.in_progress < MAX_CONCURRENT_RECONCILES and idle > MAX_IDLE_SECONDS:
            reasons.append(f"{len(self.queue)} jobs are queued but none was reconciled for {idle:.0f} s")
        return reasons

    async def run(self, tasks: asyncio.TaskGroup) -> None:
        slots = asyncio.Semaphore(MAX_CONCURRENT_RECONCILES)
        while True:
            await slots.acquire()
            job = await self._next()
            if job is None:
                return
            tasks.create_task(self._reconcile(job, slots.release))

    async def _next(self) -> JobId | None:
        """The next due job; None after `stop`."""
        while not self._wakeup.is_shut_down:
            self._wakeup.clear()
            job = self.queue.get(self._clock.monotonic())
            if job is not None:
                return job
            due = self.queue.next_due()
            await self._wakeup.wait(None if due is None else due - self._clock.monotonic())
        return None

    async def _reconcile(self, job: JobId, release: Callable[[], None]) -> None:
        kind, key = job
        started, failure = self._clock.monotonic(), ""
        self._bind_log_context(kind, key)
        try:
            with self._watchdog.track(f"reconcile of {kind} {key}"):
                wake_at = await reconcile(self._context, self._informers, kind, key)
        except Conflict as error:
            # The cache is stale: the next event leads to a new decision.
            failure = type(error).__name__
            self._retry(job, error)
        except ApiError as error:
            failure = type(error).__name__
            log.warning("reconcile failed", error=str(error))
            self._retry(job, error)
        except LeaseLost:
            raise
        except Exception:
            # A bug that one job triggers must not stop the others.
            failure = UNEXPECTED_ERROR
            log.exception("unexpected error in a reconcile")
            self._retry(job, None)
        else:
            self.queue.done(job)
            if wake_at is not None:
                self.add(job, max(0.0, (wake_at - self._clock.now()).total_seconds()))
        finally:
            self._meter.reconcile_finished(kind, self._clock.monotonic() - started, failure)
            self._note_finished(job)
            release()
            self._wakeup.set()

    def _note_finished(self, job: JobId) -> None:
        self._finished_at.pop(job, None)  # so that the order is that of the times
        self._finished_at[job] = self._clock.monotonic()

    def _bind_log_context(self, kind: str, key: Key) -> None:
        """Bind the job's identity to every log line of this task."""
        job = self._informers.jobs[kind].objects.get(key)
        uid = job.metadata.uid if job is not None else ""
        bind_contextvars(kind=kind, namespace=key.namespace, job=key.name, uid=uid)

    def _retry(self, job: JobId, error: ApiError | None) -> None:
        self.queue.requeue(job, self._clock.monotonic(), at_least=error.retry_after if error else 0.0)
