"""Follows a job with its progress and logs, until it ends, a signal arrives, or the time limit is reached."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence
from enum import Enum, auto

from tarragon.base.clock import Clock
from tarragon.cli.follow.never_fits import DECISION_SECONDS, NeverFitsWatch
from tarragon.cli.follow.printed_progress import PrintedProgress
from tarragon.cli.follow.progress_output import OutputStreams, progress_output_for
from tarragon.cli.follow.remaining_pods import RemainingPods
from tarragon.cli.follow.silence_watch import SilenceWatch
from tarragon.cli.follow.threads import has_started, thread_shares, threads_line
from tarragon.cli.follow.unprocessed import note_if_unprocessed
from tarragon.cli.jobview.follower import JobFollower
from tarragon.cli.jobview.jobs import ClusterJob, unread_log
from tarragon.cli.jobview.log_book import ContainerRun
from tarragon.cli.jobview.log_listener import DRAIN_TIMEOUT, LogStreamer
from tarragon.cli.jobview.progress import WAITING, Progress
from tarragon.cli.jobview.target import ClusterTarget
from tarragon.cli.options.notes import print_notes
from tarragon.cli.output.interrupts import SignalHandler, handled_signals, is_lost_terminal
from tarragon.cli.output.terminal import Terminal
from tarragon.cli.targets.ending import delete_job, kill_job, longest_grace, wait_until_pods_gone
from tarragon.cli.targets.next_commands import command_line
from tarragon.cli.targets.pod_logs import unreadable_text
from tarragon.cli.targets.stored_logs import log_size, raw_lines, runs_of_job
from tarragon.client.errors import ApiError
from tarragon.client.port import Client
from tarragon.job.model import Replica
from tarragon.localcluster.kubelet.node.machine import available_cpus
from tarragon.scheduling.api.decision import NEVER_FITS

REDRAW_PERIOD = 0.1
"""Seconds between two redraws: fast enough to look live, slow enough to use little CPU."""


KILL_TIMEOUT = 10.0
"""Seconds to wait for the end of processes that were killed: one that waits for a dead disk may never end."""
MAX_CATCH_UP_BYTES = 2**20
"""Bytes. A container that wrote more than this ran long enough for its log to be streamed."""


class FollowEnd(Enum):
    """Why following the job ended."""

    FINISHED = auto()
    STOPPED = auto()
    DETACHED = auto()
    TERMINATED = auto()
    HUNG_UP = auto()
    KILLED = auto()
    TIMED_OUT = auto()
    NEVER_FITS = auto()
    NEVER_FITS_AND_DELETED = auto()
    PIPE_CLOSED = auto()


class FollowSession:
    """Follows one job for one user. Call `run` once; then `follower` has the progress and `streamer` the logs.

    `submitted` is when the job was created, by the monotonic clock: its duration counts from then.
    """

    def __init__(
        self, job: ClusterJob, where: ClusterTarget, terminal: Terminal, clock: Clock, submitted: float
    ) -> None:
        self.target = where
        self._clock = clock
        self._output = progress_output_for(
            OutputStreams(out=sys.stdout, err=sys.stderr, terminal=terminal, now=clock.now)
        )
        self._printed = PrintedProgress(job.job.chief if job.job is not None else None, unread_log(job))
        self.streamer = LogStreamer(job.framework.main_container, clock, self._show_logs)
        self.streamer.on_unreadable(self._unread)
        self.streamer.on_unfinished(self._read_unfinished)
        self._silence = SilenceWatch(clock.monotonic())
        self.table_when_stopped: Sequence[str] = ()
        """The replicas as they were when Ctrl-C was pressed, with their last lines; empty if none had started."""
        self._reported: set[str] = set()
        self.follower = JobFollower(job, clock, self._progressed, self.streamer)
        self.remaining: RemainingPods | None = None
        self.seconds = 0.0
        """Seconds to the job's end. The object's own timestamps have whole seconds only."""
        self.waited = 0.0
        """Those of them before the job was admitted first."""
        self._is_queued = True
        self._began = submitted
        self._told_threads = False
        self._never_fits = NeverFitsWatch(where, clock)
        self._held: list[str] = []

    def end_remaining_pods(self) -> None:
        """Once the job is finished, ends the replicas that still run."""
        self.remaining = RemainingPods(self._clock, self._output.show_note)
        self.follower.after_end = self.remaining.end

    def hold_back(self, notes: Sequence[str]) -> None:
        """Holds these notes and the progress back until the scheduler has decided about the job.

        Of a job that can never start, neither is shown: its error says all.
        """
        self._held = list(notes)

    async def run(self, limit: float | None) -> FollowEnd:
        """Follows the job for at most `limit` seconds. When it returns, the screen is no longer redrawn."""
        try:
            return await self._watch(limit)
        finally:
            if not self._never_fits.noticed.done():
                self._release()
            self._output.close()

    def _release(self) -> None:
        print_notes(self._held)
        self._held = []

    def _may_never_start(self) -> bool:
        """Whether the scheduler has found so, or has not decided yet and soon will."""
        progress = self.follower.progress
        if progress.wait is not None:
            return progress.wait.code == NEVER_FITS
        return progress.state == WAITING and self._clock.monotonic() - self._began < DECISION_SECONDS

    async def _watch(self, limit: float | None) -> FollowEnd:
        with handled_signals() as signals:
            ticking = asyncio.create_task(self._tick())
            following = asyncio.create_task(self.target.follow(self.follower, self._clock, self._output.show_note))
            noting = asyncio.create_task(
                note_if_unprocessed(self.target, self.follower, self._clock, self._output.show_note)
            )
            try:
                wanted = (following, ticking, signals.first_interrupt, signals.terminated, self._never_fits.noticed)
                await asyncio.wait(wanted, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
                if self.remaining is not None and self.follower.progress.is_final:
                    await self._until_followed(self.remaining, (following, ticking, signals.terminated), signals)
                elif signals.first_interrupt.done() and not following.done():
                    # On a shared cluster the job continues without this terminal, and others may rely on it.
                    return await self._stop(following, signals) if self.target.is_local else FollowEnd.DETACHED
                if any(task.done() and is_lost_terminal(task.exception()) for task in (ticking, following)):
                    signals.on_signal(signal.SIGHUP)
                    return FollowEnd.HUNG_UP
                if signals.terminated.done() and not following.done():
                    return FollowEnd.HUNG_UP if signals.terminated.result() == signal.SIGHUP else FollowEnd.TERMINATED
                return self._outcome(following, ticking)
            finally:
                for task in (ticking, following, noting):
                    task.cancel()
                await asyncio.gather(ticking, following, noting, return_exceptions=True)
                await self._never_fits.close()

    async def _until_followed(
        self,
        remaining: RemainingPods,
        ends: Sequence[asyncio.Future[None] | asyncio.Future[int]],
        signals: SignalHandler,
    ) -> None:
        """The job has its result, which neither the time limit nor a Ctrl-C changes: that only ends the rest sooner."""
        for pressed in (signals.first_interrupt, signals.second_interrupt):
            await asyncio.wait((*ends, pressed), return_when=asyncio.FIRST_COMPLETED)
            if pressed.done():
                remaining.interrupt()
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)

    def _outcome(self, following: asyncio.Task[None], ticking: asyncio.Task[None]) -> FollowEnd:
        """Returns why following ended. Raises the error of a failed task."""
        if ticking.done():
            ticking.result()
        if not following.done():
            return FollowEnd.NEVER_FITS if self._never_fits.noticed.done() else FollowEnd.TIMED_OUT
        if isinstance(following.exception(), BrokenPipeError):
            # `tarragon run FILE | head`: the reader of the logs has closed the pipe.
            return FollowEnd.PIPE_CLOSED
        following.result()
        self._catch_up()
        return FollowEnd.FINISHED

    def _catch_up(self) -> None:
        """Reports the logs of containers that ended before they could be streamed, from this machine's disk."""
        job = self.follower.job
        for run in runs_of_job(self.target.nodes_folder, job):
            instance = ContainerRun(run.replica, run.uid, run.container, run.number)
            if run.container == job.framework.main_container and log_size(run) <= MAX_CATCH_UP_BYTES:
                self.streamer.report_missed(instance, raw_lines(run))

    async def _stop(self, following: asyncio.Task[None], signals: SignalHandler) -> FollowEnd:
        self._release()
        job = self.follower.job
        self.table_when_stopped = self._silence.table(self._clock.monotonic())
        self._output.show_note(
            f"Stopping {job.name}: waiting up to {longest_grace(job)} s for its replicas to end; "
            "press Ctrl-C again to kill them."
        )
        stopping = asyncio.create_task(self._delete())
        await asyncio.wait(
            (stopping, signals.second_interrupt, signals.terminated), return_when=asyncio.FIRST_COMPLETED
        )
        if not stopping.done():
            stopping.cancel()
            await asyncio.gather(stopping, return_exceptions=True)
            async with self.target.writing(self._clock) as cluster:
                await kill_job(cluster, self.follower.job)
                await self._until_killed(cluster, signals)
            return FollowEnd.KILLED
        stopping.result()
        await asyncio.wait((following,), timeout=DRAIN_TIMEOUT)
        return FollowEnd.STOPPED

    async def _until_killed(self, cluster: Client, signals: SignalHandler) -> None:
        """Returns when no process of the job runs, at most after `KILL_TIMEOUT`, or at the user's wish."""
        ending = asyncio.create_task(wait_until_pods_gone(cluster, self.follower.job, self._clock))
        late = asyncio.create_task(self._clock.sleep(KILL_TIMEOUT))
        wanted = (ending, late, signals.third_interrupt, signals.terminated)
        await asyncio.wait(wanted, return_when=asyncio.FIRST_COMPLETED)
        late.cancel()
        if ending.done():
            ending.result()
            return
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)
        self._output.show_note("Its replicas are killed, but have not all ended yet.")

    async def _delete(self) -> None:
        async with self.target.writing(self._clock) as cluster:
            await delete_job(cluster, self.follower.job, self._clock)

    async def _tick(self) -> None:
        while True:
            if self._printed.has_news or self._held:
                self._show_progress()
            if note := self._silence.note(self._clock.monotonic(), self._why_command):
                self._output.show_note(note)
            self._output.tick()
            await self._clock.sleep(REDRAW_PERIOD)

    @property
    def _why_command(self) -> str:
        return command_line(self.target.command_prefix, self.follower.job.command_key, "why")

    def _show_logs(self, replica: Replica, lines: Sequence[tuple[str, str]]) -> None:
        self._output.show_logs(replica, lines)
        texts = [text for _, text in lines]
        self._printed.read(replica, texts, self._clock.now())
        self._silence.printed(replica, texts, self._clock.monotonic())

    def _read_unfinished(self, replica: Replica, text: str) -> None:
        self._printed.read_unfinished(replica, text, self._clock.now())
        self._silence.printed(replica, [text], self._clock.monotonic())

    def _show_progress(self) -> None:
        if self._held and self._may_never_start():
            return
        self._release()
        follower = self.follower
        self._output.show_progress(self._printed.applied_to(follower.progress, follower.job.status.work))

    def _progressed(self, progress: Progress) -> None:
        self._silence.progressed(progress, self._clock.monotonic())
        self._show_progress()
        if self._is_queued and progress.state != WAITING:
            self._is_queued = False
            self.waited = self._clock.monotonic() - self._began
        if progress.is_final and not self.seconds:
            self.seconds = self._clock.monotonic() - self._began
        self._never_fits.progressed(progress)
        if not self._told_threads and has_started(progress):
            self._told_threads = True
            self._note_threads()

    def _note_threads(self) -> None:
        job = self.follower.job
        shares = thread_shares(job, runs_of_job(self.target.nodes_folder, job))
        if line := threads_line(shares, list(job.requested), available_cpus()):
            self._output.show_note(line)

    def _unread(self, replica: Replica, error: ApiError) -> None:
        """Prints each reason once per replica. On this machine the log is read from the disk instead."""
        self._silence.unreadable(replica)
        words = unreadable_text(replica, error)
        if not self.target.is_local and words not in self._reported:
            self._reported.add(words)
            self._output.show_note(words)
