"""`tarragon submit`: hands a FILE to the cluster and returns."""

from __future__ import annotations

import asyncio

import click

from tarragon.base.clock import Clock, SystemClock
from tarragon.cli.filecommand import FileCommand, changes, one_file
from tarragon.cli.hints import MEANWHILE, hints
from tarragon.cli.jobs import Known
from tarragon.cli.loading import Loaded, load
from tarragon.cli.settings import Settings
from tarragon.cli.submission import Submission
from tarragon.cli.target import Target, target


@click.command("submit", cls=FileCommand)
@click.argument("file", metavar="FILE", required=False)
@click.pass_context
def command(ctx: click.Context, *, file: str | None, option: str | None) -> None:
    """Hand the job of FILE to the cluster, with all it needs, and print its name. FILE may be - or a URL."""
    settings = ctx.ensure_object(Settings)
    where = target(settings)
    loaded = load(where, settings, one_file(file, option), changes(ctx))
    job = asyncio.run(submitted(where, loaded, SystemClock()))
    click.echo(job.name)
    click.echo("\n".join(hints(where.prompt, job.address, MEANWHILE)), err=True)


async def submitted(where: Target, loaded: Loaded, clock: Clock) -> Known:
    """The job as it is stored; everything that was done for it is told on stderr."""

    def note(text: str) -> None:
        click.echo(text, err=True)

    for text in loaded.notes:
        note(text)
    async with where.changing(clock) as cluster:
        return await Submission(cluster, where, clock, note).submit(loaded)
