"""`tarragon wait` and `submit --wait`: waits for a job and prints its result."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tarragon.base.clock import SystemClock
from tarragon.cli.follow.awaiting import Awaited, Met, await_job
from tarragon.cli.jobview.jobs import Known, find
from tarragon.cli.jobview.schema import headed
from tarragon.cli.jobview.target import Target
from tarragon.cli.options.formats import TEXTS
from tarragon.cli.options.settings import Settings
from tarragon.cli.output.words import elapsed
from tarragon.cli.targets.next_commands import MEANWHILE, hints
from tarragon.cli.targets.resolving import target


async def wait(settings: Settings, name: str, states: Sequence[str], limit: float | None, form: str | None) -> int:
    where = target(settings)
    async with where.looking() as looker:
        job = await find(looker, name, where.namespace)
    return await waited_for(where, settings, job, states, limit, form=form)


async def waited_for(
    where: Target,
    settings: Settings,
    job: Known,
    states: Sequence[str],
    limit: float | None,
    *,
    watches: bool = False,
    form: str | None = None,
) -> int:
    """Waits, prints the result, and returns the exit code."""
    clock = SystemClock()
    wanted = Awaited(states=[state.lower() for state in states], limit=limit, watches=watches)
    met = await await_job(where, job, wanted, clock, settings.terminal())
    seconds = met.follower.progress.elapsed(clock.now())
    if met.is_left:
        click.echo(f"Detached from {job.name}: it continues in {job.key.namespace} on {where.name}.", err=True)
        click.echo("\n".join(hints(where.prompt, job.address, MEANWHILE)), err=True)
    click.echo(_result_line(met, job, seconds) if form is None else TEXTS[form](_fields(met, job, seconds)))
    return met.code


def _result_line(met: Met, job: Known, seconds: float) -> str:
    if met.follower.is_gone:
        return f"{met.state}  {job.key.name}"
    return f"{met.state}  {job.key.name} after {elapsed(seconds)}"


def _fields(met: Met, job: Known, seconds: float) -> dict[str, object]:
    facts = {
        "name": job.key.name,
        "namespace": job.key.namespace,
        "job": job.name,
        "state": met.state,
        "seconds": round(seconds, 3),
        "exitCode": met.code,
    }
    return dict(headed("Waited", facts))
