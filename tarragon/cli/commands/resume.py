"""`tarragon resume`: resumes suspended jobs, which return to the queue."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tarragon.cli.jobs.selection import job_selection, job_selection_options
from tarragon.cli.options.arguments import checked_wait_options, wait_options
from tarragon.cli.options.settings import GlobalOptions, TarragonCommand


@click.command("resume", cls=TarragonCommand)
@job_selection_options
@wait_options("--wait", "wait until the job runs")
@click.pass_obj
def command(
    settings: GlobalOptions, *, names: Sequence[str], labels: str, everything: bool, waits: bool, limit: float | None
) -> int:
    """Resume suspended jobs. They queue again, and activeDeadlineSeconds starts again. JOB as in `get`.

    \b
    Exit codes: 0 all jobs are resumed or were not suspended; 1 a job has ended;
                101 timed out; 102 a job was not found
    """  # noqa: D301 - a real backspace: click's mark for lines to leave alone
    import asyncio

    from tarragon.base.clock import SystemClock
    from tarragon.cli.jobs.editing import edit_jobs
    from tarragon.cli.jobs.suspension import RESUME
    from tarragon.cli.targets.resolving import resolve_target

    wanted = job_selection(names, labels, everything=everything)
    patience = checked_wait_options(waits=waits, limit=limit)
    return asyncio.run(edit_jobs(resolve_target(settings), wanted, RESUME, SystemClock(), patience))
