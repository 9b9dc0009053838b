"""Waits for a job, without its logs, until it ends or reaches a state."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine
from dataclasses import dataclass

from tarragon.base.clock import Clock
from tarragon.cli.follow.changes import stall_reason
from tarragon.cli.follow.never_fits import NeverFitsWatch, never_fits_message
from tarragon.cli.follow.progress_output import LineOutput, OutputStreams
from tarragon.cli.follow.unprocessed import note_if_unprocessed
from tarragon.cli.jobview.exit_code import NEVER_FITS, UNFINISHED, exit_code
from tarragon.cli.jobview.follower import JobFollower
from tarragon.cli.jobview.jobs import ClusterJob
from tarragon.cli.jobview.progress import RUNNING, Progress
from tarragon.cli.jobview.target import ClusterTarget
from tarragon.cli.options.notes import print_note
from tarragon.cli.output.interrupts import SIGNAL_EXIT_BASE, SignalHandler
from tarragon.cli.output.prose import print_message
from tarragon.cli.output.words import duration_text
from tarragon.cli.targets.next_commands import command_line


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitGoal:
    """What to wait for: one of `states`, or the job's end if empty; for `limit` seconds, or without a limit if None."""

    states: Collection[str] = ()
    limit: float | None = None
    changes: OutputStreams | None = None
    """Where each change of a job is printed; None if only reasons why it makes no progress are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitResult:
    """The result of waiting. `is_detached`: a Ctrl-C, SIGTERM or SIGHUP ended it."""

    follower: JobFollower
    exit_code: int
    is_detached: bool = False

    @property
    def state(self) -> str:
        return "Deleted" if self.follower.is_deleted else self.follower.progress.state


async def wait_for_job(
    target: ClusterTarget, job: ClusterJob, wanted: WaitGoal, clock: Clock, signals: SignalHandler
) -> WaitResult:
    """Returns when the job reaches a state or can't any more, when the time is up, or when a signal arrives."""
    reached = asyncio.Event()
    never_fits = NeverFitsWatch(target, clock)
    changes = LineOutput(wanted.changes) if wanted.changes else None
    report = changes.show_progress if changes is not None else _StallNotes(job.name).progressed

    def progressed(progress: Progress) -> None:
        report(progress)
        never_fits.progressed(progress)
        if progress.state.lower() in wanted.states:
            reached.set()

    follower = JobFollower(job, clock, progressed)
    if follower.is_over or follower.progress.state.lower() in wanted.states:
        return _met(follower, wanted)
    unprocessed = asyncio.create_task(
        note_if_unprocessed(target, follower, clock, changes.show_note if changes is not None else print_note)
    )
    try:
        left = await _until(target.follow(follower, clock, print_note), reached, wanted.limit, signals, never_fits)
    finally:
        unprocessed.cancel()
        await asyncio.gather(unprocessed, return_exceptions=True)
    if reached.is_set() or follower.is_over:
        return WaitResult(follower=follower, exit_code=0) if reached.is_set() else _met(follower, wanted)
    if left is None and never_fits.noticed.done():
        print_message(never_fits_message(job, follower.progress))
        delete = command_line(target.command_prefix, job.command_key, "delete")
        print_message(f"  It waits until you delete it: {delete}")
        return WaitResult(follower=follower, exit_code=NEVER_FITS)
    if left is None:
        goal = "reached that state" if wanted.states else "ended"
        print_message(f"{job.name} has not {goal} within {duration_text(wanted.limit or 0)}.")
    return WaitResult(follower=follower, exit_code=UNFINISHED if left is None else left, is_detached=left is not None)


class _StallNotes:
    """Prints why a job makes no progress, each reason once, and when it runs again.

    Otherwise a user would not notice that the wait may never end.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._last_reason = ""
        self._has_reported_stall = False

    def progressed(self, progress: Progress) -> None:
        reason = stall_reason(progress)
        if reason not in {"", self._last_reason}:
            print_note(f"{self._name} is {progress.state}: {reason}")
            self._has_reported_stall = True
        elif self._has_reported_stall and not reason and progress.state == RUNNING:
            print_note(f"{self._name} is now {progress.state}.")
            self._has_reported_stall = False
        self._last_reason = reason


async def _until(
    following: Coroutine[None, None, None],
    reached: asyncio.Event,
    limit: float | None,
    signals: SignalHandler,
    never_fits: NeverFitsWatch,
) -> int | None:
    """Returns the exit code if a signal ended the wait, else None. Raises the error of the follower."""
    follows, reaches = asyncio.create_task(following), asyncio.create_task(reached.wait())
    try:
        wanted = (follows, reaches, signals.first_interrupt, signals.terminated, never_fits.noticed)
        await asyncio.wait(wanted, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        if follows.done():
            follows.result()
        if signals.first_interrupt.done():
            return UNFINISHED
        return SIGNAL_EXIT_BASE + signals.terminated.result() if signals.terminated.done() else None
    finally:
        follows.cancel()
        reaches.cancel()
        await asyncio.gather(follows, reaches, return_exceptions=True)
        await never_fits.close()


def _met(follower: JobFollower, wanted: WaitGoal) -> WaitResult:
    """The result for a job that is over: its own exit code, or 0 if the user waited for this state."""
    code = exit_code(follower.progress, follower.job.status, is_gone=follower.is_deleted)
    met = WaitResult(follower=follower, exit_code=code)
    if met.state.lower() in wanted.states:
        return WaitResult(follower=follower, exit_code=0)
    return met if not wanted.states or code else WaitResult(follower=follower, exit_code=UNFINISHED)
