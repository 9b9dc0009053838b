"""Follows one job on a cluster until it has finished, is suspended or is deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from tarragon.base.clock import Clock
from tarragon.cli.jobview.jobs import ClusterJob, pods_of, progress_input, read_job
from tarragon.cli.jobview.live import JobWatch
from tarragon.cli.jobview.log_listener import LogStreamer
from tarragon.cli.jobview.progress import FAILED, RUNNING, STARTING, TERMINATING, Progress, newest_pods, progress_of
from tarragon.client.port import Client
from tarragon.job.model import Replica
from tarragon.kube.core import Pod

EXIT_CODES_GRACE = 2.0
"""Seconds to wait after the job's end for the exit codes of replicas that are terminating."""
FAILURES_GRACE = 1.0
"""Seconds to wait after a failure for running and starting replicas: often all of them fail with the same error."""

AfterEnd = Callable[["JobFollower", JobWatch], Awaitable[None]]
"""What is done once the job is finished, while its replicas and their logs are still followed."""


class JobFollower:
    """Reports the progress and the logs of one job.

    `follow` may be called again with another connection: it continues where it stopped and reports nothing twice.
    Without a `listener` no logs are read.
    """

    def __init__(
        self, job: ClusterJob, clock: Clock, progressed: Callable[[Progress], None], listener: LogStreamer | None = None
    ) -> None:
        self.job = job
        self.progress = progress_of(progress_input(job, {}))
        self.is_deleted = False
        self.after_end: AfterEnd | None = None
        self._clock = clock
        self._progressed = progressed
        self._listener = listener
        self._pods: dict[Replica, Pod] = {}
        self._has_reported = False

    @property
    def is_over(self) -> bool:
        """Whether the job is deleted, finished or suspended: nothing more happens without a user's action."""
        return self.is_deleted or self.progress.is_final or self.progress.state == "Suspended"

    async def follow(self, cluster: Client) -> None:
        """Returns when the job is over. Raises Unavailable or Unauthorized when the connection is lost."""
        live = JobWatch(cluster, self.job, self._clock)
        try:
            async with live.watching():
                await self._next_change(live)
                while not self.is_over:
                    await self._next_change(live)
                await self._drain(live)
        finally:
            if self._listener is not None:
                await self._listener.stop()

    async def _next_change(self, live: JobWatch) -> None:
        await live.wait_for_change()
        if self._listener is not None and self._listener.error is not None:
            raise self._listener.error
        if live.error is not None:
            raise live.error
        await self.refresh(live)

    async def _drain(self, live: JobWatch) -> None:
        """Waits for the exit codes and the last log lines of replicas that end together with the job."""
        began = self._clock.monotonic()
        while (left := began + self._settling_time - self._clock.monotonic()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await live.wait_for_change()
            await self.refresh(live)
        if self.after_end is not None and self.progress.is_final and not self.is_deleted:
            await self.after_end(self, live)
        if self._listener is not None:
            await self._drain_logs(live, self._listener)

    async def _drain_logs(self, live: JobWatch, listener: LogStreamer) -> None:
        """Reads the rest of the logs. Raises if the connection is lost meanwhile: the next one continues."""
        reading = asyncio.create_task(listener.drain(live.cluster, self._pods))
        loss = asyncio.create_task(live.wait_for_error())
        try:
            await asyncio.wait((reading, loss), return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                reading.result()
            elif live.error is not None:
                raise live.error
        finally:
            reading.cancel()
            loss.cancel()
            await asyncio.gather(reading, loss, return_exceptions=True)

    @property
    def _settling_time(self) -> float:
        """Seconds after the job's end in which the states of its replicas may still change."""
        states = set() if self.is_deleted else {member.state for member in self.progress.replicas}
        if TERMINATING in states:
            return EXIT_CODES_GRACE
        return FAILURES_GRACE if states & {RUNNING, STARTING} and self.progress.state == FAILED else 0.0

    async def refresh(self, live: JobWatch) -> None:
        """Takes over the state of the job and its pods, and reports what has changed."""
        found = live.job
        self.is_deleted = found is None
        if found is not None:
            self.job = read_job(self.job.framework, found)
        # Two watches have no common order: the job's end may arrive before the ends of the replicas that caused it.
        pods = await live.list_pods() if self.job.status.phase.is_final else live.pods
        present = newest_pods(pods_of(self.job, pods))
        self._pods |= present
        gone = frozenset(pod.metadata.uid for replica, pod in self._pods.items() if replica not in present)
        progress = progress_of(progress_input(self.job, self._pods, gone))
        if progress != self.progress or not self._has_reported:
            self.progress = progress
            self._has_reported = True
            self._progressed(progress)
        if self._listener is not None:
            self._listener.start(live.cluster, present, live.wake)
