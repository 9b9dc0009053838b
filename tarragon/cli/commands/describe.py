"""`tarragon describe`: shows the details of one job."""

from __future__ import annotations

import click

from tarragon.cli.jobs.selection import JobArgument
from tarragon.cli.options.settings import GlobalOptions, TarragonCommand
from tarragon.cli.targets.completion import complete_job


@click.command("describe", cls=TarragonCommand)
@click.argument("name", cls=JobArgument, metavar="JOB", shell_complete=complete_job)
@click.option("-o", "--output", "form", type=click.Choice(["json", "yaml"]), help="output format")
@click.pass_obj
def command(settings: GlobalOptions, name: str, form: str | None) -> None:
    """Show details of a job: conditions, replicas, addresses, folders and events."""
    import asyncio

    from tarragon.cli.jobs.description import describe

    asyncio.run(describe(settings, name, form))
