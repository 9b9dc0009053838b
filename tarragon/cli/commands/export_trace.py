"""`tarragon export-trace`: prints the finished jobs of a cluster as a trace for `tarragon simulate`."""

from __future__ import annotations

import click

from tarragon.cli.options.settings import GlobalOptions, TarragonCommand


@click.command("export-trace", cls=TarragonCommand)
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="export jobs of all namespaces")
@click.pass_obj
def command(settings: GlobalOptions, *, everywhere: bool) -> None:
    """Print finished jobs as CSV, for `tarragon simulate`. Jobs that were deleted are not known any more."""
    import asyncio

    asyncio.run(_export(settings, everywhere))


async def _export(settings: GlobalOptions, everywhere: bool) -> None:
    from tarragon.base.errors import TarragonError
    from tarragon.cli.jobview.jobs import list_jobs
    from tarragon.cli.simulation.finished_jobs import trace_of
    from tarragon.cli.targets.resolving import resolve_target
    from tarragon.client.port import Selector

    where = resolve_target(settings)
    async with where.reading() as reader:
        jobs = await list_jobs(reader, Selector(namespace="" if everywhere else where.namespace))
    text = trace_of(jobs)
    if not text:
        place = "" if everywhere else f" in namespace {where.namespace}"
        raise TarragonError(
            f"no job{place} has finished", remedy="" if everywhere else "-A exports the jobs of all namespaces"
        )
    click.echo(text, nl=False)
