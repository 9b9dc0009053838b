"""`tarragon list`: prints a table of jobs with their state, and why a job waits or failed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence

import click

from tarragon.base.clock import Clock, SystemClock
from tarragon.cli.jobs.listing import SORT_KEYS, JobTable, sort_jobs
from tarragon.cli.jobview.jobs import ClusterJob, list_jobs, list_raw_jobs
from tarragon.cli.jobview.queueing import JobKey, is_queued, queue_positions
from tarragon.cli.jobview.target import ClusterReader
from tarragon.cli.options.formats import FORMATTERS, OUTPUT_FORMATS, list_object, print_table, without_managed_fields
from tarragon.cli.options.notes import print_note
from tarragon.cli.options.settings import GlobalOptions, TarragonCommand
from tarragon.cli.options.states import complete_states, states
from tarragon.cli.output.terminal import Sink, sink_of, size
from tarragon.cli.targets.resolving import resolve_target
from tarragon.client.errors import ApiError
from tarragon.client.port import Selector
from tarragon.kube.selectors import parse_label_selector


@click.command("list", cls=TarragonCommand)
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
@click.option(
    "--state",
    "wanted_states",
    type=states,
    multiple=True,
    shell_complete=complete_states,
    metavar="STATES",
    help="only jobs in these states: running,failed",
)
@click.option(
    "--sort-by", "order", type=click.Choice(list(SORT_KEYS)), default="name", help="sort order; name by default"
)
@click.option("--no-headers", is_flag=True, help="omit the header")
@click.option("-w", "--watch", "watches", is_flag=True, help="after listing, watch for changes")
@click.option(
    "-o", "--output", "form", type=click.Choice(OUTPUT_FORMATS), default="table", help="output format; table by default"
)
@click.option("--show-managed-fields", "shows_managed", is_flag=True, help="keep managedFields in YAML and JSON output")
@click.pass_obj
def command(
    settings: GlobalOptions,
    *,
    everywhere: bool,
    labels: str,
    fields: str,
    wanted_states: tuple[frozenset[str], ...],
    order: str,
    no_headers: bool,
    watches: bool,
    form: str,
    shows_managed: bool,
) -> None:
    """List jobs with their state, and why a job waits or failed."""
    try:
        parse_label_selector(labels)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--selector") from error
    if watches and form not in {"table", "wide"}:
        raise click.UsageError(f"--watch prints a table, not {form}")
    where = resolve_target(settings)
    selection = Selector(namespace="" if everywhere else where.namespace, label_selector=labels, field_selector=fields)
    wanted = JobTable(
        settings=settings,
        target=where,
        selection=selection,
        form=form,
        order=order,
        states=frozenset().union(*wanted_states),
        has_header=not no_headers,
        shows_managed=shows_managed,
    )
    if watches:
        from tarragon.cli.jobs.watching import watch_jobs

        asyncio.run(watch_jobs(wanted, SystemClock()))
    else:
        asyncio.run(_list(wanted, SystemClock()))


async def _list(wanted: JobTable, clock: Clock) -> None:
    async with wanted.target.reading() as reader:
        if wanted.form in FORMATTERS:
            found = await list_raw_jobs(reader, wanted.selection)
            if wanted.states:
                shown = {job.uid for job in await list_jobs(reader, wanted.selection) if wanted.shows(job)}
                found = [job for job in found if job["metadata"]["uid"] in shown]
            items = found if wanted.shows_managed else [without_managed_fields(job) for job in found]
            click.echo(FORMATTERS[wanted.form](list_object(items)))
            return
        jobs = await list_jobs(reader, wanted.selection)
        queue = await _queue(reader, jobs, wanted.selection)
    jobs = sort_jobs(filter(wanted.shows, jobs), wanted.order, queue)
    if wanted.form == "name":
        for job in jobs:
            click.echo(job.name)
    elif jobs:
        table = wanted.naming_kinds_of(jobs)
        _show([table.header, *(table.row(job, clock.now(), queue) for job in jobs)], table)
    else:
        where = f" in namespace {wanted.selection.namespace}; -A shows all" if wanted.selection.namespace else ""
        which = f" that are {' or '.join(sorted(wanted.states))}" if wanted.states else ""
        print_note(f"No jobs{which}{where}")


async def _queue(reader: ClusterReader, jobs: Sequence[ClusterJob], selection: Selector) -> Mapping[JobKey, int]:
    """Return the queue position of each waiting job.

    The queue spans all namespaces; a user who may not list them all gets the positions within the listed namespace.
    """
    if not any(map(is_queued, jobs)):
        return {}
    if selection == Selector():
        return queue_positions(jobs)
    try:
        return queue_positions(await list_jobs(reader, Selector()))
    except ApiError:
        return queue_positions(jobs) if selection == Selector(namespace=selection.namespace) else {}


def _show(rows: Sequence[Sequence[str]], wanted: JobTable) -> None:
    """Print the table; a narrow terminal omits columns without information, a file gets all of them."""
    if sink_of(sys.stdout) is Sink.TERMINAL:
        rows = wanted.fitted(rows, size(sys.stdout).columns)
    print_table(rows, wanted.settings, shown=None if wanted.has_header else len(rows) - 1)
