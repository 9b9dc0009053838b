"""Submits one job, and follows it to its end: the work of `tarragon run` and `tarragon submit`."""

from __future__ import annotations

import click

from tarragon.base.clock import Clock, SystemClock
from tarragon.cli.follow.attending import FollowSession
from tarragon.cli.follow.verdict import report_outcome
from tarragon.cli.jobview.jobs import ClusterJob
from tarragon.cli.jobview.target import ClusterTarget
from tarragon.cli.manifest.loading import LoadedJob
from tarragon.cli.manifest.submission import Submitter
from tarragon.cli.output.style import painter
from tarragon.cli.output.terminal import Terminal


async def submit_job(target: ClusterTarget, loaded: LoadedJob, clock: Clock, *, is_once: bool = False) -> ClusterJob:
    """Submit the job and the objects it needs, print notes on stderr, and return the job as stored."""

    def note(text: str) -> None:
        click.echo(text, err=True)

    for text in loaded.notes:
        note(text)
    async with target.writing(clock) as cluster:
        submission = Submitter(cluster, target, clock, note)
        return await (submission.submit_unless_unchanged(loaded) if is_once else submission.submit(loaded))


async def run_attached(
    target: ClusterTarget, terminal: Terminal, loaded: LoadedJob, limit: float | None, *, is_once: bool = False
) -> int:
    """Submit and follow the job, and return the exit code. With `is_once`, a job that already exists is followed."""
    clock = SystemClock()
    job = await submit_job(target, loaded, clock, is_once=is_once)
    attendance = FollowSession(job, target, terminal, clock)
    how = await attendance.run(limit)
    return report_outcome(attendance, how, limit, painter(colors=terminal.colors_out))
