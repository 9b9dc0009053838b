"""`tarragon list`: all jobs, with their state and what keeps them from going on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass

import click

from tarragon.base.clock import Clock, SystemClock
from tarragon.base.errors import TarragonError
from tarragon.cli.jobs import Known, all_jobs, is_indispensable, known, whole_jobs
from tarragon.cli.output import FORMS, TEXTS, as_list, show
from tarragon.cli.rows import deleted, header, least, row
from tarragon.cli.settings import Command, Settings
from tarragon.cli.target import Target, target
from tarragon.cluster.errors import ApiError, Forbidden, Unauthorized, Unavailable
from tarragon.cluster.port import Cluster, Selection
from tarragon.cluster.reflector import Cache, Trouble
from tarragon.frameworks.catalog import FRAMEWORKS
from tarragon.frameworks.plugin import Framework
from tarragon.kube.meta import CustomObject, Key
from tarragon.kube.selectors import label_selector


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which jobs, and how they are shown."""

    settings: Settings
    where: Target
    selection: Selection
    form: str

    @property
    def header(self) -> Sequence[str]:
        return header(is_wide=self.form == "wide", names_namespace=not self.selection.namespace)

    def row(self, job: Known, clock: Clock) -> Sequence[str]:
        return row(job, clock.now(), is_wide=self.form == "wide", names_namespace=not self.selection.namespace)


@dataclass(frozen=True, slots=True)
class Change:
    """What a watch has seen of a job."""

    job: Known
    is_deletion: bool


@click.command("list", cls=Command)
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="of all namespaces")
@click.option("-l", "--selector", "labels", default="", help="only jobs with these labels: team=vision,tier!=test")
@click.option("-w", "--watch", "watches", is_flag=True, help="go on, with a line for every change")
@click.option("-o", "--output", "form", type=click.Choice(FORMS), default="table", help="table by default")
@click.pass_obj
def command(settings: Settings, everywhere: bool, labels: str, watches: bool, form: str) -> None:
    """All jobs with their state, and why they do not go on."""
    try:
        label_selector(labels)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--selector") from error
    if watches and form not in {"table", "wide"}:
        raise click.UsageError(f"--watch prints a table, not {form}")
    where = target(settings)
    selection = Selection(namespace="" if everywhere else where.namespace, labels=labels)
    wanted = Wanted(settings=settings, where=where, selection=selection, form=form)
    asyncio.run(_watch(wanted, SystemClock()) if watches else _list(wanted, SystemClock()))


async def _list(wanted: Wanted, clock: Clock) -> None:
    async with wanted.where.looking() as looker:
        if wanted.form in TEXTS:
            click.echo(TEXTS[wanted.form](as_list(await whole_jobs(looker, wanted.selection))))
            return
        jobs = await all_jobs(looker, wanted.selection)
    if wanted.form == "name":
        for job in jobs:
            click.echo(job.name)
    elif jobs:
        show([wanted.header, *(wanted.row(job, clock) for job in jobs)], wanted.settings)
    else:
        where = f" in namespace {wanted.selection.namespace}; -A shows all" if wanted.selection.namespace else ""
        click.echo(f"No jobs{where}", err=True)


async def _watch(wanted: Wanted, clock: Clock) -> None:
    """Rows as they change, the header once. Ends with Ctrl-C, or with the cluster."""
    changes: asyncio.Queue[Change | ApiError] = asyncio.Queue()
    rows: dict[tuple[str, Key], Sequence[str]] = {}
    async with wanted.where.watching() as cluster:
        # Whoever may not list, or finds no kind, hears it now, not never.
        await all_jobs(cluster, wanted.selection)
        tasks = [asyncio.create_task(_cache(cluster, each, wanted, changes).run()) for each in FRAMEWORKS]
        show([least(wanted.header), wanted.header], wanted.settings, shown=1)
        try:
            while True:
                change = await changes.get()
                if isinstance(change, ApiError):
                    _tell(wanted.where, change)
                else:
                    _show_change(wanted, change, clock, rows)
        finally:
            for task in tasks:
                task.cancel()


def _tell(where: Target, error: ApiError) -> None:
    """Raises what will not mend itself. A cluster that others run comes back, and the watch goes on where it was."""
    if not isinstance(error, Unavailable):
        raise error
    if where.is_local:
        raise TarragonError("the cluster has ended while it was watched") from error
    click.echo(f"{where.name} does not answer ({error.what}); trying again.", err=True)


def _show_change(wanted: Wanted, change: Change, clock: Clock, rows: dict[tuple[str, Key], Sequence[str]]) -> None:
    header, job = wanted.header, change.job
    cells, before = wanted.row(job, clock), rows.pop((job.framework.kind, job.key), ())
    if change.is_deletion:
        show([least(header), deleted(cells, header)], wanted.settings, shown=1)
        return
    rows[job.framework.kind, job.key] = cells
    age = header.index("AGE")
    if [*cells[:age], *cells[age + 1 :]] != [*before[:age], *before[age + 1 :]]:
        show([least(header), cells], wanted.settings, shown=1)


def _cache(
    cluster: Cluster, framework: Framework, wanted: Wanted, changes: asyncio.Queue[Change | ApiError]
) -> Cache[CustomObject]:
    cache = Cache(cluster, framework.resource, SystemClock(), wanted.selection, jitter=random.Random())

    def changed(_: Key, before: CustomObject | None, after: CustomObject | None) -> None:
        found = after or before
        if found is not None:
            changes.put_nowait(Change(known(framework, found), is_deletion=after is None))

    def troubled(trouble: Trouble) -> None:
        is_left_out = isinstance(trouble.error, Forbidden) and not is_indispensable(framework.resource)
        if not is_left_out and isinstance(trouble.error, Unavailable | Unauthorized | Forbidden):
            changes.put_nowait(trouble.error)

    cache.subscribe(changed)
    cache.on_trouble(troubled)
    return cache
