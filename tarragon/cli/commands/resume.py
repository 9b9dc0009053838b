"""`tarragon resume`: resumes suspended jobs, which return to the queue."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tarragon.cli.jobs.selection import choice, choice_options
from tarragon.cli.options.arguments import patience_options, waited
from tarragon.cli.options.settings import Command, Settings


@click.command("resume", cls=Command)
@choice_options
@patience_options("--wait", "wait until the job runs")
@click.pass_obj
def command(
    settings: Settings, *, names: Sequence[str], labels: str, everything: bool, waits: bool, limit: float | None
) -> int:
    """Resume suspended jobs. They queue again, and activeDeadlineSeconds starts again. JOB as in `get`.

    \b
    Exit codes: 0 all jobs are resumed or were not suspended; 1 a job has ended;
                101 timed out; 102 a job was not found
    """  # noqa: D301 - a real backspace: click's mark for lines to leave alone
    import asyncio

    from tarragon.base.clock import SystemClock
    from tarragon.cli.jobs.editing import edit_all
    from tarragon.cli.jobs.suspension import RESUME
    from tarragon.cli.targets.resolving import target

    wanted = choice(names, labels, everything=everything)
    patience = waited(waits=waits, limit=limit)
    return asyncio.run(edit_all(target(settings), wanted, RESUME, SystemClock(), patience))
