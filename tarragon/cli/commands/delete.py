"""`tarragon delete`: ends a job and takes it away; its logs stay."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import click

from tarragon.base.clock import Clock, SystemClock
from tarragon.cli.arguments import complete_job
from tarragon.cli.ending import delete
from tarragon.cli.invocation import here
from tarragon.cli.jobs import Known, find
from tarragon.cli.leftovers import leftovers
from tarragon.cli.session import cluster, looking
from tarragon.cli.settings import Command, Settings, home
from tarragon.cli.words import listed


@click.command("delete", cls=Command)
@click.argument("names", metavar="JOB...", nargs=-1, required=True, shell_complete=complete_job)
@click.pass_obj
def command(settings: Settings, names: Sequence[str]) -> None:
    """End a job and take it away. Its logs stay, and so does what others may use, too."""
    asyncio.run(_delete(settings, names, SystemClock()))


async def _delete(settings: Settings, names: Sequence[str], clock: Clock) -> None:
    async with looking(settings) as looker:
        # All are looked up before any is deleted: a misspelled one stops the whole.
        jobs = [await find(looker, name, settings.namespace) for name in names]
    async with cluster(settings, clock) as http:
        for job in {job.uid: job for job in jobs}.values():
            click.echo(f"Deleting {job.name} in {job.key.namespace} on local ({home().folder})", err=True)
            await delete(http, job, clock)
            click.echo(f"{job.name} deleted")
            click.echo(_left(job), err=True)


def _left(job: Known) -> str:
    others = leftovers({"spec": job.object.spec})
    kept = f"; also left, as others may use it: {listed(others)}" if others else ""
    return f"Its logs are kept: {here()} logs {job.key.name}{kept}"
