"""`tarragon get`: prints one job as a table row or as an object."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from tarragon.cli.options.formats import FORMS, TEXTS, show, unmanaged
from tarragon.cli.options.settings import Command, Settings
from tarragon.cli.targets.completion import complete_job

if TYPE_CHECKING:
    from tarragon.kube.meta import JsonObject


@click.command("get", cls=Command)
@click.argument("name", metavar="JOB", shell_complete=complete_job)
@click.option(
    "-o", "--output", "form", type=click.Choice(FORMS), default="table", help="output format; table by default"
)
@click.option("--show-managed-fields", "shows_managed", is_flag=True, help="keep managedFields in YAML and JSON output")
@click.pass_obj
def command(settings: Settings, *, name: str, form: str, shows_managed: bool) -> None:
    """Print one job. JOB is a name, kind/name or @latest."""
    import asyncio

    asyncio.run(_get(settings, name, form, dict if shows_managed else unmanaged))


async def _get(settings: Settings, name: str, form: str, as_shown: Callable[[JsonObject], JsonObject]) -> None:
    from tarragon.base.clock import SystemClock
    from tarragon.cli.jobview.jobs import find
    from tarragon.cli.jobview.rows import header, row
    from tarragon.cli.targets.resolving import target

    where = target(settings)
    async with where.looking() as looker:
        job = await find(looker, name, where.namespace)
        if form in TEXTS:
            found = await looker.get(job.framework.resource.reading(dict), job.key)
            click.echo(TEXTS[form](as_shown(found)))
            return
    if form == "name":
        click.echo(job.name)
        return
    facts = {"is_wide": form == "wide", "names_namespace": False}
    show([header(**facts), row(job, SystemClock().now(), **facts)], settings)
