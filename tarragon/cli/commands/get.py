"""`tarragon get`: one job, as a row or as the object it is."""

from __future__ import annotations

import click

from tarragon.cli.completing import complete_job
from tarragon.cli.output import FORMS, TEXTS, show
from tarragon.cli.settings import Command, Settings


@click.command("get", cls=Command)
@click.argument("name", metavar="JOB", shell_complete=complete_job)
@click.option("-o", "--output", "form", type=click.Choice(FORMS), default="table", help="table by default")
@click.pass_obj
def command(settings: Settings, name: str, form: str) -> None:
    """One job, as a row or as the object it is. JOB is a name, kind/name or @latest."""
    import asyncio

    asyncio.run(_get(settings, name, form))


async def _get(settings: Settings, name: str, form: str) -> None:
    from tarragon.base.clock import SystemClock
    from tarragon.cli.jobs import find
    from tarragon.cli.rows import header, row
    from tarragon.cli.target import target

    where = target(settings)
    async with where.looking() as looker:
        job = await find(looker, name, where.namespace)
        if form in TEXTS:
            click.echo(TEXTS[form](await looker.get(job.framework.resource.reading(dict), job.key)))
            return
    if form == "name":
        click.echo(job.name)
        return
    facts = {"is_wide": form == "wide", "names_namespace": False}
    show([header(**facts), row(job, SystemClock().now(), **facts)], settings)
