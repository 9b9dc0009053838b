"""`tarragon scale`: changes the number of replicas of a job."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tarragon.cli.jobs.selection import job_selection, job_selection_options
from tarragon.cli.options.arguments import checked_wait_options, replica_count, wait_options
from tarragon.cli.options.settings import GlobalOptions, TarragonCommand

_NUMBER = click.IntRange(0, 100_000)


@click.command("scale", cls=TarragonCommand)
@job_selection_options
@click.option("--workers", type=_NUMBER, metavar="N", help="number of workers; same as --replicas worker=N")
@click.option(
    "--replicas",
    "others",
    type=replica_count,
    multiple=True,
    metavar="TYPE=N",
    help="number of replicas of a type, such as ps=2",
)
@click.option("--min", "least", type=click.IntRange(1), metavar="N", help="minimum number of workers of an elastic job")
@click.option("--max", "most", type=click.IntRange(1), metavar="N", help="maximum number of workers of an elastic job")
@click.option("--restart", "by_restart", is_flag=True, help="restart all replicas if the job can't grow otherwise")
@wait_options("--wait", "wait until the job runs at this size")
@click.pass_obj
def command(
    settings: GlobalOptions,
    *,
    names: Sequence[str],
    labels: str,
    everything: bool,
    workers: int | None,
    others: Sequence[tuple[str, int]],
    least: int | None,
    most: int | None,
    by_restart: bool,
    waits: bool,
    limit: float | None,
) -> int:
    """Change the number of replicas of a job. JOB as in `get`.

    Any job can shrink while it runs; only an elastic job can grow. Any other job needs --restart to grow, which
    restarts all of its replicas.

    \b
    Exit codes: 0 scaled or unchanged; 1 the job can't be scaled; 2 invalid size;
                101 timed out; 102 a job was not found
    """  # noqa: D301 - a real backspace: click's mark for lines to leave alone
    import asyncio

    from tarragon.base.clock import SystemClock
    from tarragon.cli.jobs.editing import edit_jobs
    from tarragon.cli.jobs.scaling import RequestedSize, scale_edit
    from tarragon.cli.targets.resolving import resolve_target
    from tarragon.frameworks.kubeflow.fields import WORKER
    from tarragon.job.model import ReplicaType

    given = [*(((WORKER, workers),) if workers is not None else ()), *others]
    if not given and least is None and most is None:
        raise click.UsageError("one of --workers, --replicas, --min and --max is required")
    if len({name for name, _ in given}) < len(given):
        raise click.UsageError("a replica type is given more than once")
    wish = RequestedSize(
        replicas={ReplicaType(name): number for name, number in given},
        minimum=least,
        maximum=most,
        by_restart=by_restart,
    )
    wanted = job_selection(names, labels, everything=everything)
    patience = checked_wait_options(waits=waits, limit=limit)
    return asyncio.run(edit_jobs(resolve_target(settings), wanted, scale_edit(wish), SystemClock(), patience))
