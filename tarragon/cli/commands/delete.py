"""`tarragon delete`: deletes jobs and their pods."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from tarragon.cli.jobs.selection import job_selection, job_selection_options
from tarragon.cli.options.settings import GlobalOptions, TarragonCommand


@click.command("delete", cls=TarragonCommand)
@job_selection_options
@click.option("-y", "--yes", is_flag=True, help="delete all jobs without asking")
@click.pass_obj
def command(settings: GlobalOptions, *, names: Sequence[str], labels: str, everything: bool, yes: bool) -> int:
    """Delete jobs and their pods. ConfigMaps, Secrets and volume claims are kept; so are logs on the local cluster.

    \b
    With --all, a terminal asks first.
    Exit codes: 0 all jobs were deleted, 1 not confirmed, 102 a job was not found
    """  # noqa: D301 - a real backspace: click's mark for lines to leave alone
    from tarragon.base.clock import SystemClock
    from tarragon.cli.jobs.deletion import confirmed, delete_jobs, unasked

    asks = everything and not yes and sys.stdin.isatty() and sys.stderr.isatty()
    selection = job_selection(names, labels, everything=everything)
    return delete_jobs(settings, selection, SystemClock(), confirmed if asks else unasked)
