"""`tarragon wait`: returns when a job has ended, with its result as exit code."""

from __future__ import annotations

import asyncio

import click

from tarragon.base.clock import Clock, SystemClock
from tarragon.cli.arguments import complete_job, duration
from tarragon.cli.follow.follower import Follower
from tarragon.cli.jobs import Known, find
from tarragon.cli.report.outcome import exit_code
from tarragon.cli.settings import Command, Settings
from tarragon.cli.target import Target, target
from tarragon.cli.words import elapsed


@click.command("wait", cls=Command)
@click.argument("name", metavar="JOB", shell_complete=complete_job)
@click.option(
    "--timeout",
    "limit",
    type=duration,
    metavar="DURATION",
    help="give up after that long (90, 5m, 2h) with exit code 101",
)
@click.pass_obj
def command(settings: Settings, name: str, limit: float | None) -> int:
    """Return when JOB has ended, however it did. Without --timeout it waits for ever.

    \b
    Exit codes: 0 succeeded, 100 failed, 101 not finished in time,
    102 no such job, 103 deleted or suspended, 104 evicted
    """  # noqa: D301 - a real backspace: click's mark for lines to leave alone
    return asyncio.run(_wait(settings, name, limit))


async def _wait(settings: Settings, name: str, limit: float | None) -> int:
    clock = SystemClock()
    where = target(settings)
    async with where.looking() as looker:
        job = await find(looker, name, where.namespace)
    follower = Follower(job, clock, lambda _: None)
    if not follower.is_over:
        await _until_over(where, follower, clock, limit)
    click.echo(_told(follower, job, clock))
    return exit_code(follower.progress, follower.job.status, is_gone=follower.is_gone)


async def _until_over(where: Target, follower: Follower, clock: Clock, limit: float | None) -> None:
    def note(text: str) -> None:
        click.echo(text, err=True)

    if limit is None:
        note(f"Waiting for {follower.job.name} without a limit; --timeout sets one.")
    try:
        async with asyncio.timeout(limit):
            await where.follow(follower, clock, note)
    except TimeoutError:
        note(f"{follower.job.name} has not ended within {elapsed(limit or 0)}.")


def _told(follower: Follower, job: Known, clock: Clock) -> str:
    if follower.is_gone:
        return f"Deleted  {job.key.name}"
    progress = follower.progress
    return f"{progress.state}  {job.key.name} after {elapsed(progress.elapsed(clock.now()))}"
