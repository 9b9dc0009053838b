"""Follows a job with its progress and logs, until it ends, a signal arrives, or the time limit is reached."""

from __future__ import annotations

import asyncio
import signal
import sys
from enum import Enum

from tarragon.base.clock import Clock
from tarragon.cli.follow.progress_output import Stage, teller
from tarragon.cli.jobview.follower import Follower
from tarragon.cli.jobview.jobs import Known
from tarragon.cli.jobview.log_book import Instance
from tarragon.cli.jobview.log_listener import LAST_WORDS, Listener
from tarragon.cli.jobview.progress import Progress
from tarragon.cli.jobview.target import Target
from tarragon.cli.output.interrupts import Interrupts, interrupts, is_lost_terminal
from tarragon.cli.output.terminal import Terminal
from tarragon.cli.targets.ending import delete, kill
from tarragon.cli.targets.pod_logs import unread
from tarragon.cli.targets.stored_logs import as_written, runs_of_job, size
from tarragon.client.errors import ApiError
from tarragon.job.model import Replica
from tarragon.scheduling.api.decision import NEVER_FITS

TICK = 0.1
"""Seconds between two redraws: fast enough to look live, slow enough to use little CPU."""
SURE = 0.8
"""Seconds for which a job must be impossible to start: a new cluster may not have registered its nodes yet."""


SHORT = 2**20
"""Bytes. A container that wrote more than this ran long enough for its log to be streamed."""


class How(Enum):
    """Why following the job ended."""

    OVER = "over"
    STOPPED = "stopped"
    LEFT = "left"
    TERMINATED = "terminated"
    HUNG_UP = "hung up"
    FORCED = "forced"
    TOO_LATE = "too late"
    STUCK = "stuck"
    UNREAD = "unread"


class Attendance:
    """Follows one job for one user. Call `attend` once; then `follower` has the progress and `listener` the logs."""

    def __init__(self, job: Known, where: Target, terminal: Terminal, clock: Clock) -> None:
        self.where = where
        self._clock = clock
        self._teller = teller(Stage(out=sys.stdout, err=sys.stderr, terminal=terminal, now=clock.now))
        self.listener = Listener(job.framework.main_container, clock, self._teller.said)
        self.listener.on_unread(self._unread)
        self._reported: set[str] = set()
        self.follower = Follower(job, clock, self._progressed, self.listener)
        self.took = 0.0
        """Seconds to the job's end. The object's own timestamps have whole seconds only."""
        self._began = clock.monotonic()
        self._stuck: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._giving_up: asyncio.Task[None] | None = None

    async def attend(self, limit: float | None) -> How:
        """Follows the job for at most `limit` seconds. When it returns, the screen is no longer redrawn."""
        try:
            return await self._watch(limit)
        finally:
            self._teller.close()

    async def _watch(self, limit: float | None) -> How:
        with interrupts() as signals:
            ticking = asyncio.create_task(self._tick())
            following = asyncio.create_task(self.where.follow(self.follower, self._clock, self._teller.note))
            try:
                wanted = (following, ticking, signals.first, signals.told, self._stuck)
                await asyncio.wait(wanted, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
                if signals.first.done() and not following.done():
                    # On a shared cluster the job continues without this terminal, and others may rely on it.
                    return await self._stop(following, signals) if self.where.is_local else How.LEFT
                if any(task.done() and is_lost_terminal(task.exception()) for task in (ticking, following)):
                    signals.tell(signal.SIGHUP)
                    return How.HUNG_UP
                if signals.told.done() and not following.done():
                    return How.HUNG_UP if signals.told.result() == signal.SIGHUP else How.TERMINATED
                return self._outcome(following, ticking)
            finally:
                tasks = [ticking, following, *([self._giving_up] if self._giving_up is not None else [])]
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    def _outcome(self, following: asyncio.Task[None], ticking: asyncio.Task[None]) -> How:
        """Returns why following ended. Raises the error of a failed task."""
        if ticking.done():
            ticking.result()
        if not following.done():
            return How.STUCK if self._stuck.done() else How.TOO_LATE
        if isinstance(following.exception(), BrokenPipeError):
            # `tarragon run FILE | head`: the reader of the logs has closed the pipe.
            return How.UNREAD
        following.result()
        self._catch_up()
        return How.OVER

    def _catch_up(self) -> None:
        """Reports the logs of containers that ended before they could be streamed, from this machine's disk."""
        job = self.follower.job
        for run in runs_of_job(self.where.nodes, job):
            instance = Instance(run.replica, run.uid, run.container, run.number)
            if run.container == job.framework.main_container and size(run) <= SHORT:
                self.listener.catch_up(instance, as_written(run))

    async def _stop(self, following: asyncio.Task[None], signals: Interrupts) -> How:
        name = self.follower.job.name
        self._teller.note(f"Stopping {name}: waiting for its replicas to terminate; press Ctrl-C again to kill them.")
        stopping = asyncio.create_task(self._delete())
        await asyncio.wait((stopping, signals.second, signals.told), return_when=asyncio.FIRST_COMPLETED)
        if not stopping.done():
            stopping.cancel()
            await asyncio.gather(stopping, return_exceptions=True)
            async with self.where.changing(self._clock) as cluster:
                await kill(cluster, self.follower.job)
            return How.FORCED
        stopping.result()
        await asyncio.wait((following,), timeout=LAST_WORDS)
        return How.STOPPED

    async def _delete(self) -> None:
        async with self.where.changing(self._clock) as cluster:
            await delete(cluster, self.follower.job, self._clock)

    async def _tick(self) -> None:
        while True:
            self._teller.tick()
            await self._clock.sleep(TICK)

    def _progressed(self, progress: Progress) -> None:
        self._teller.progressed(progress)
        if progress.is_final and not self.took:
            self.took = self._clock.monotonic() - self._began
        # A cluster may get more nodes; this machine can't.
        never_fits = self.where.is_local and progress.wait is not None and progress.wait.code == NEVER_FITS
        if never_fits and self._giving_up is None:
            self._giving_up = asyncio.create_task(self._give_up())
        elif not never_fits and self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None

    def _unread(self, replica: Replica, error: ApiError) -> None:
        """Prints each reason once per replica. On this machine the log is read from the disk instead."""
        words = unread(replica, error)
        if not self.where.is_local and words not in self._reported:
            self._reported.add(words)
            self._teller.note(words)

    async def _give_up(self) -> None:
        await self._clock.sleep(SURE)
        if not self._stuck.done():
            self._stuck.set_result(None)
