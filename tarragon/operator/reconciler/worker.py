"""Takes one job after the other from the queue when it is due; each reconcile is a task of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog
from structlog.contextvars import bind_contextvars

from tarragon.client.errors import ApiError, Conflict
from tarragon.client.leader_election import LeaseLost
from tarragon.kube.meta import Key
from tarragon.operator.informers.informers import World
from tarragon.operator.metrics.meter import Meter
from tarragon.operator.queue.wakeup import Bell
from tarragon.operator.queue.workqueue import WorkQueue
from tarragon.operator.reconciler.apply import Means
from tarragon.operator.reconciler.reconcile import reconcile
from tarragon.operator.reconciler.watchdog import LONGEST_PAUSE, Watchdog

AT_WORK = 16
"""Reconciles at once."""

BUG = "Bug"
"""What an error is counted as that is none of the API server's."""

JobId = tuple[str, Key]
log = structlog.get_logger(__name__)


class Worker:
    """`start`, then `run` until `stop`."""

    def __init__(self, means: Means, world: World, meter: Meter) -> None:
        self.queue: WorkQueue[JobId] = WorkQueue()
        self._means = means
        self._world = world
        self._meter = meter
        self._clock = means.clock
        self._bell = Bell(means.clock)
        self._watch = Watchdog(means.clock)

    def add(self, job: JobId, delay: float) -> None:
        """To be looked at after so many seconds."""
        self.queue.add(job, self._clock.monotonic() + delay)
        self._bell.ring()

    def start(self) -> None:
        """From now on it is expected that jobs which are due are taken."""
        self._watch.start()

    def stop(self) -> None:
        """Begin nothing more."""
        self._bell.ring_for_ever()

    def stuck(self) -> Sequence[str]:
        """What has not moved for so long that only a new process helps."""
        found = [*self._watch.hanging()]
        idle = self._watch.idle_since(self.queue.next_due())
        if self._watch.at_work < AT_WORK and idle > LONGEST_PAUSE:
            found.append(f"{len(self.queue)} jobs are queued and none was taken for {idle:.0f} s")
        return found

    async def run(self, tasks: asyncio.TaskGroup) -> None:
        slots = asyncio.Semaphore(AT_WORK)
        while True:
            await slots.acquire()
            job = await self._next()
            if job is None:
                return
            tasks.create_task(self._work_on(job, slots.release))

    async def _next(self) -> JobId | None:
        """None when nothing more is to begin."""
        while not self._bell.has_ended:
            self._bell.silence()
            job = self.queue.take(self._clock.monotonic())
            if job is not None:
                return job
            due = self.queue.next_due()
            await self._bell.heard(None if due is None else due - self._clock.monotonic())
        return None

    async def _work_on(self, job: JobId, release: Callable[[], None]) -> None:
        kind, key = job
        began, failure = self._clock.monotonic(), ""
        self._name_in_logs(kind, key)
        try:
            with self._watch.work(f"reconcile of {kind} {key}"):
                wake_at = await reconcile(self._means, self._world, kind, key)
        except Conflict as error:
            # The cache is behind: what it will show next decides anew.
            failure = type(error).__name__
            self._retry(job, error)
        except ApiError as error:
            failure = type(error).__name__
            log.warning("reconcile", error=str(error))
            self._retry(job, error)
        except LeaseLost:
            raise
        except Exception:
            # One job that meets a bug must not stop all the others.
            failure = BUG
            log.exception("reconcile met a bug")
            self._retry(job, None)
        else:
            self.queue.done(job)
            if wake_at is not None:
                self.add(job, max(0.0, (wake_at - self._clock.now()).total_seconds()))
        finally:
            self._meter.reconciled(kind, self._clock.monotonic() - began, failure)
            release()
            self._bell.ring()

    def _name_in_logs(self, kind: str, key: Key) -> None:
        """On every line of this task, whoever writes it."""
        job = self._world.jobs[kind].objects.get(key)
        uid = job.metadata.uid if job is not None else ""
        bind_contextvars(kind=kind, namespace=key.namespace, job=key.name, uid=uid)

    def _retry(self, job: JobId, error: ApiError | None) -> None:
        self.queue.failed(job, self._clock.monotonic(), at_least=error.retry_after if error else 0.0)
