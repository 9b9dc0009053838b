"""`tarragon suspend`: deletes the pods of a job and releases its resources until it is resumed."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tarragon.cli.jobs.selection import job_selection, job_selection_options
from tarragon.cli.options.arguments import checked_wait_options, wait_options
from tarragon.cli.options.settings import GlobalOptions, TarragonCommand


@click.command("suspend", cls=TarragonCommand)
@job_selection_options
@wait_options("--wait", "wait until all pods of the job are gone")
@click.pass_obj
def command(
    settings: GlobalOptions, *, names: Sequence[str], labels: str, everything: bool, waits: bool, limit: float | None
) -> int:
    """Suspend jobs: delete their pods and release their resources until `resume`. JOB as in `get`.

    Finished replicas and the number of restarts are kept. This sets spec.runPolicy.suspend, which
    kubeflow.org/v1alpha2, v1beta1 and v1beta2 do not have.

    \b
    Exit codes: 0 all jobs are suspended; 1 a job has ended;
                101 timed out; 102 a job was not found
    """  # noqa: D301 - a real backspace: click's mark for lines to leave alone
    import asyncio

    from tarragon.base.clock import SystemClock
    from tarragon.cli.jobs.editing import edit_jobs
    from tarragon.cli.jobs.suspension import SUSPEND
    from tarragon.cli.targets.resolving import resolve_target

    wanted = job_selection(names, labels, everything=everything)
    patience = checked_wait_options(waits=waits, limit=limit)
    return asyncio.run(edit_jobs(resolve_target(settings), wanted, SUSPEND, SystemClock(), patience))
