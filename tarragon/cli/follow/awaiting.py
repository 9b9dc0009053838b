"""Waiting for a job without its logs: until it has ended, or is in a state that is waited for."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Collection, Coroutine
from dataclasses import dataclass

import click

from tarragon.base.clock import Clock
from tarragon.cli.follow.changes import standstill
from tarragon.cli.follow.progress_output import Plain, Stage
from tarragon.cli.jobview.exit_code import UNFINISHED, exit_code
from tarragon.cli.jobview.follower import Follower
from tarragon.cli.jobview.jobs import Known
from tarragon.cli.jobview.progress import RUNNING, Progress
from tarragon.cli.jobview.target import Target
from tarragon.cli.output.interrupts import SIGNALLED, Interrupts, interrupts
from tarragon.cli.output.terminal import Terminal
from tarragon.cli.output.words import elapsed


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaited:
    """`states` none: its end, however it comes. `limit` in seconds, None for ever."""

    states: Collection[str] = ()
    limit: float | None = None
    watches: bool = False
    """Whether each change is told meanwhile, on stderr."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Met:
    """How it ended. `is_left`: by Ctrl-C, SIGTERM or SIGHUP."""

    follower: Follower
    code: int
    is_left: bool = False

    @property
    def state(self) -> str:
        return "Deleted" if self.follower.is_gone else self.follower.progress.state


async def await_job(where: Target, job: Known, wanted: Awaited, clock: Clock, terminal: Terminal) -> Met:
    """Return when it is there, when it never will be, when time has run out, or when somebody ends us."""
    reached = asyncio.Event()
    teller = Plain(Stage(out=sys.stdout, err=sys.stderr, terminal=terminal, now=clock.now))
    tell = teller.progressed if wanted.watches else _Standstills(job.name).progressed

    def progressed(progress: Progress) -> None:
        tell(progress)
        if progress.state.lower() in wanted.states:
            reached.set()

    follower = Follower(job, clock, progressed)
    if follower.is_over or follower.progress.state.lower() in wanted.states:
        return _met(follower, wanted)
    with interrupts() as counted:
        if wanted.limit is None:
            _note(f"Waiting for {job.name} without a limit; --timeout sets one.")
        left = await _until(where.follow(follower, clock, _note), reached, wanted.limit, counted)
    if reached.is_set() or follower.is_over:
        return Met(follower=follower, code=0) if reached.is_set() else _met(follower, wanted)
    if left is None:
        _note(f"{job.name} has not {'come to that' if wanted.states else 'ended'} within {elapsed(wanted.limit or 0)}.")
    return Met(follower=follower, code=UNFINISHED if left is None else left, is_left=left is not None)


class _Standstills:
    """Tells only why a job does not go on, each reason once: who waits for nothing to happen would wait for ever.

    And when it does go on: then nothing that was told holds any more.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._told = ""
        self._is_held_up = False

    def progressed(self, progress: Progress) -> None:
        why = standstill(progress)
        if why not in {"", self._told}:
            _note(f"{self._name} is {progress.state}: {why}")
            self._is_held_up = True
        elif self._is_held_up and not why and progress.state == RUNNING:
            _note(f"{self._name} is {progress.state} now.")
            self._is_held_up = False
        self._told = why


async def _until(
    following: Coroutine[None, None, None], reached: asyncio.Event, limit: float | None, counted: Interrupts
) -> int | None:
    """The exit code of whoever was made to leave it. Raises what the following has met."""
    follows, reaches = asyncio.create_task(following), asyncio.create_task(reached.wait())
    try:
        wanted = (follows, reaches, counted.first, counted.told)
        await asyncio.wait(wanted, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        if follows.done():
            follows.result()
        if counted.first.done():
            return UNFINISHED
        return SIGNALLED + counted.told.result() if counted.told.done() else None
    finally:
        follows.cancel()
        reaches.cancel()
        await asyncio.gather(follows, reaches, return_exceptions=True)


def _note(text: str) -> None:
    click.echo(text, err=True)


def _met(follower: Follower, wanted: Awaited) -> Met:
    """Over: with its own result, unless that is what was waited for."""
    code = exit_code(follower.progress, follower.job.status, is_gone=follower.is_gone)
    met = Met(follower=follower, code=code)
    if met.state.lower() in wanted.states:
        return Met(follower=follower, code=0)
    return met if not wanted.states or code else Met(follower=follower, code=UNFINISHED)
