"""`tarragon wait`: returns when a job has ended, with its result as exit code."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import click

from tarragon.base.clock import SystemClock
from tarragon.cli.arguments import duration
from tarragon.cli.awaiting import STATES, Awaited, Met, await_job
from tarragon.cli.completing import complete_job
from tarragon.cli.hints import MEANWHILE, hints
from tarragon.cli.jobs import Known, find
from tarragon.cli.output import TEXTS
from tarragon.cli.schema import headed
from tarragon.cli.settings import Command, Settings
from tarragon.cli.target import Target, target
from tarragon.cli.words import elapsed


@click.command("wait", cls=Command)
@click.argument("name", metavar="JOB", shell_complete=complete_job)
@click.option(
    "--for",
    "states",
    multiple=True,
    type=click.Choice(STATES, case_sensitive=False),
    metavar="STATE",
    help="return with 0 when it is in one of these states, in the words of `list`: --for running --for failed",
)
@click.option(
    "--timeout",
    "limit",
    type=duration,
    metavar="DURATION",
    help="give up after that long (90, 5m, 2h) with exit code 101",
)
@click.option("-o", "--output", "form", type=click.Choice(list(TEXTS)), help="the result for programs")
@click.pass_obj
def command(settings: Settings, name: str, states: Sequence[str], limit: float | None, form: str | None) -> int:
    """Return when JOB has ended, however it did, or is in a state of --for. Without --timeout it waits for ever.

    \b
    States: created waiting starting running restarting suspended succeeded
    failed deleted
    Exit codes: 0 succeeded, or it is in a state of --for; 100 failed,
    101 not finished in time, left by Ctrl-C, or ended without that state;
    102 no such job, 103 deleted or suspended, 104 evicted,
    143 or 129 ended by SIGTERM or SIGHUP
    """  # noqa: D301 - a real backspace: click's mark for lines to leave alone
    return asyncio.run(_wait(settings, name, states, limit, form))


async def _wait(settings: Settings, name: str, states: Sequence[str], limit: float | None, form: str | None) -> int:
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
    """The exit code, once it has been told."""
    clock = SystemClock()
    wanted = Awaited(states=[state.lower() for state in states], limit=limit, watches=watches)
    met = await await_job(where, job, wanted, clock, settings.terminal())
    seconds = met.follower.progress.elapsed(clock.now())
    if met.is_left:
        click.echo(f"Left {job.name} alone: it goes on in {job.key.namespace} on {where.name}.", err=True)
        click.echo("\n".join(hints(where.prompt, job.address, MEANWHILE)), err=True)
    click.echo(_told(met, job, seconds) if form is None else TEXTS[form](_fields(met, job, seconds)))
    return met.code


def _told(met: Met, job: Known, seconds: float) -> str:
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
