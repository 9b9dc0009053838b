"""`tarragon get`: prints one job as a table row or as an object."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from tarragon.cli.jobs.selection import JobArgument
from tarragon.cli.options.formats import FORMATTERS, OUTPUT_FORMATS, print_table, without_managed_fields
from tarragon.cli.options.settings import GlobalOptions, TarragonCommand
from tarragon.cli.targets.completion import complete_job

if TYPE_CHECKING:
    from tarragon.kube.meta import JsonObject


@click.command("get", cls=TarragonCommand)
@click.argument("name", cls=JobArgument, metavar="JOB", shell_complete=complete_job)
@click.option(
    "-o", "--output", "form", type=click.Choice(OUTPUT_FORMATS), default="table", help="output format; table by default"
)
@click.option("--show-managed-fields", "shows_managed", is_flag=True, help="keep managedFields in YAML and JSON output")
@click.pass_obj
def command(settings: GlobalOptions, *, name: str, form: str, shows_managed: bool) -> None:
    """Print one job. JOB is a name, kind/name or @latest."""
    import asyncio

    asyncio.run(_get(settings, name, form, dict if shows_managed else without_managed_fields))


async def _get(settings: GlobalOptions, name: str, form: str, as_shown: Callable[[JsonObject], JsonObject]) -> None:
    from tarragon.base.clock import SystemClock
    from tarragon.cli.jobview.jobs import find_job
    from tarragon.cli.jobview.rows import header, job_row
    from tarragon.cli.targets.resolving import resolve_target

    where = resolve_target(settings)
    async with where.reading() as reader:
        job = await find_job(reader, name, where.namespace)
        if form in FORMATTERS:
            found = await reader.get(job.framework.resource.with_model(dict), job.key)
            click.echo(FORMATTERS[form](as_shown(found)))
            return
    if form == "name":
        click.echo(job.name)
        return
    facts = {"is_wide": form == "wide", "names_namespace": False}
    print_table([header(**facts), job_row(job, SystemClock().now(), **facts)], settings)
