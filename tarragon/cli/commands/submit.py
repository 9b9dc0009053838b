"""`tarragon submit`: hands a FILE to the cluster and returns."""

from __future__ import annotations

import asyncio

import click

from tarragon.base.clock import Clock, SystemClock
from tarragon.cli.filecommand import FileCommand, changes, one_file
from tarragon.cli.hints import MEANWHILE, hints
from tarragon.cli.invocation import here
from tarragon.cli.jobs import Known
from tarragon.cli.loading import Loaded, load
from tarragon.cli.session import cluster, require_local
from tarragon.cli.settings import Settings
from tarragon.cli.submission import submit


@click.command("submit", cls=FileCommand)
@click.argument("file", metavar="FILE", required=False)
@click.pass_context
def command(ctx: click.Context, *, file: str | None, option: str | None) -> None:
    """Hand the job of FILE to the cluster, with all it needs, and print its name. FILE may be - or a URL."""
    settings = ctx.ensure_object(Settings)
    require_local(settings)
    job = asyncio.run(submitted(settings, load(settings, one_file(file, option), changes(ctx)), SystemClock()))
    click.echo(job.name)
    click.echo("\n".join(hints(here(), job.key, MEANWHILE)), err=True)


async def submitted(settings: Settings, loaded: Loaded, clock: Clock) -> Known:
    """The job as it is stored; everything that was done for it is told on stderr."""

    def note(text: str) -> None:
        click.echo(text, err=True)

    for text in loaded.notes:
        note(text)
    async with cluster(settings, clock) as http:
        return await submit(http, loaded, clock, note)
