"""`tarragon why`: what keeps a job from going on, or why it failed, and what usually helps."""

from __future__ import annotations

import click

from tarragon.cli.options.settings import Command, Settings
from tarragon.cli.targets.completion import complete_job


@click.command("why", cls=Command)
@click.argument("name", metavar="JOB", shell_complete=complete_job)
@click.option("-o", "--output", "form", type=click.Choice(["json", "yaml"]), help="for programs")
@click.pass_obj
def command(settings: Settings, name: str, form: str | None) -> None:
    """Why JOB waits, does not start, or failed; from its status, so also when its pods are gone."""
    import asyncio

    from tarragon.cli.explain.explanation import why

    asyncio.run(why(settings, name, form))
