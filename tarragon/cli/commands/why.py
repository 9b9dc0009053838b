"""`tarragon why`: explains why a job waits or failed, and suggests a remedy."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tarragon.cli.jobs.selection import JobArgument
from tarragon.cli.options.arguments import assignment
from tarragon.cli.options.settings import GlobalOptions, TarragonCommand
from tarragon.cli.targets.completion import complete_job


@click.command("why", cls=TarragonCommand)
@click.argument("name", cls=JobArgument, metavar="JOB", shell_complete=complete_job)
@click.option(
    "--what-if",
    "changes",
    metavar="KEY=VALUE",
    type=assignment,
    multiple=True,
    help="simulate the queue with a change, as `simulate --from-cluster` does; may be repeated: add-nodes=4xNODE, "
    "remove=NODE, policy=NAME, submit=FILE, run-time=DURATION",
)
@click.option("-o", "--output", "form", type=click.Choice(["json", "yaml"]), help="output format")
@click.pass_obj
def command(settings: GlobalOptions, name: str, changes: Sequence[tuple[str, str]], form: str | None) -> None:
    """Explain why JOB waits, does not start, or failed. Reads its status, so its pods need not exist."""
    import asyncio

    from tarragon.cli.explain.explanation import print_explanation

    asyncio.run(print_explanation(settings, name, form, changes))
