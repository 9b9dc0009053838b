"""`tarragon list`: prints a table of jobs with their state, and why a job waits or failed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence

import click

from tarragon.base.clock import Clock, SystemClock
from tarragon.cli.jobs.listing import ORDERS, Wanted, in_order
from tarragon.cli.jobview.jobs import Known, all_jobs, whole_jobs
from tarragon.cli.jobview.queueing import JobKey, positions, waits
from tarragon.cli.jobview.rows import fitting
from tarragon.cli.jobview.target import Looker
from tarragon.cli.options.formats import FORMS, TEXTS, as_list, show, unmanaged
from tarragon.cli.options.settings import Command, Settings
from tarragon.cli.output.terminal import Sink, sink, size
from tarragon.cli.targets.resolving import target
from tarragon.client.errors import ApiError
from tarragon.client.port import Selection
from tarragon.kube.selectors import label_selector


@click.command("list", cls=Command)
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="list jobs in all namespaces")
@click.option(
    "-l",
    "--selector",
    "labels",
    default="",
    metavar="LABELS",
    help="only jobs with these labels: team=vision,tier!=test",
)
@click.option(
    "--field-selector",
    "fields",
    default="",
    metavar="FIELDS",
    help="only jobs with these fields: metadata.name!=digits",
)
@click.option("--sort-by", "order", type=click.Choice(list(ORDERS)), default="name", help="sort order; name by default")
@click.option("--no-headers", is_flag=True, help="omit the header")
@click.option("-w", "--watch", "watches", is_flag=True, help="after listing, watch for changes")
@click.option(
    "-o", "--output", "form", type=click.Choice(FORMS), default="table", help="output format; table by default"
)
@click.option("--show-managed-fields", "shows_managed", is_flag=True, help="keep managedFields in YAML and JSON output")
@click.pass_obj
def command(
    settings: Settings,
    *,
    everywhere: bool,
    labels: str,
    fields: str,
    order: str,
    no_headers: bool,
    watches: bool,
    form: str,
    shows_managed: bool,
) -> None:
    """List jobs with their state, and why a job waits or failed."""
    try:
        label_selector(labels)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--selector") from error
    if watches and form not in {"table", "wide"}:
        raise click.UsageError(f"--watch prints a table, not {form}")
    where = target(settings)
    selection = Selection(namespace="" if everywhere else where.namespace, labels=labels, fields=fields)
    wanted = Wanted(
        settings=settings,
        where=where,
        selection=selection,
        form=form,
        order=order,
        has_header=not no_headers,
        shows_managed=shows_managed,
    )
    if watches:
        from tarragon.cli.jobs.watching import watch

        asyncio.run(watch(wanted, SystemClock()))
    else:
        asyncio.run(_list(wanted, SystemClock()))


async def _list(wanted: Wanted, clock: Clock) -> None:
    async with wanted.where.looking() as looker:
        if wanted.form in TEXTS:
            found = await whole_jobs(looker, wanted.selection)
            items = found if wanted.shows_managed else [unmanaged(job) for job in found]
            click.echo(TEXTS[wanted.form](as_list(items)))
            return
        jobs = await all_jobs(looker, wanted.selection)
        queue = await _queue(looker, jobs, wanted.selection)
    jobs = in_order(jobs, wanted.order, queue)
    if wanted.form == "name":
        for job in jobs:
            click.echo(job.name)
    elif jobs:
        _show([wanted.header, *(wanted.row(job, clock.now(), queue) for job in jobs)], wanted)
    else:
        where = f" in namespace {wanted.selection.namespace}; -A shows all" if wanted.selection.namespace else ""
        click.echo(f"No jobs{where}", err=True)


async def _queue(looker: Looker, jobs: Sequence[Known], selection: Selection) -> Mapping[JobKey, int]:
    """Return the queue position of each waiting job.

    The queue spans all namespaces; a user who may not list them all gets the positions within the listed namespace.
    """
    if not any(map(waits, jobs)):
        return {}
    if selection == Selection():
        return positions(jobs)
    try:
        return positions(await all_jobs(looker, Selection()))
    except ApiError:
        return positions(jobs) if selection == Selection(namespace=selection.namespace) else {}


def _show(rows: Sequence[Sequence[str]], wanted: Wanted) -> None:
    """Print the table; a narrow terminal omits columns without information, a file gets all of them."""
    if sink(sys.stdout) is Sink.TERMINAL:
        rows = fitting(rows, size(sys.stdout).columns)
    show(rows, wanted.settings, shown=None if wanted.has_header else len(rows) - 1)
