"""`tarragon delete`: deletes jobs and their pods."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tarragon.cli.jobs.selection import job_selection, job_selection_options
from tarragon.cli.options.settings import GlobalOptions, TarragonCommand


@click.command("delete", cls=TarragonCommand)
@job_selection_options
@click.pass_obj
def command(settings: GlobalOptions, *, names: Sequence[str], labels: str, everything: bool) -> int:
    """Delete jobs and their pods. ConfigMaps, Secrets and volume claims are kept; so are logs on the local cluster.

    \b
    Exit codes: 0 all jobs were deleted, 102 a job was not found
    """  # noqa: D301 - a real backspace: click's mark for lines to leave alone
    import asyncio

    from tarragon.base.clock import SystemClock
    from tarragon.cli.jobs.deletion import delete_jobs

    return asyncio.run(delete_jobs(settings, job_selection(names, labels, everything=everything), SystemClock()))
