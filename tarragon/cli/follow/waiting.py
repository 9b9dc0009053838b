"""`tarragon wait` and `submit --wait`: waits for a job and prints its result."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tarragon.base.clock import SystemClock
from tarragon.cli.follow.awaiting import WaitGoal, WaitResult, wait_for_job
from tarragon.cli.jobview.jobs import ClusterJob, find_job
from tarragon.cli.jobview.schema import document
from tarragon.cli.jobview.target import ClusterTarget
from tarragon.cli.options.formats import FORMATTERS
from tarragon.cli.options.notes import print_note
from tarragon.cli.options.settings import GlobalOptions
from tarragon.cli.output.words import duration_text
from tarragon.cli.targets.next_commands import WHILE_RUNNING, next_commands
from tarragon.cli.targets.resolving import resolve_target


async def wait_command(
    settings: GlobalOptions, name: str, states: Sequence[str], limit: float | None, form: str | None
) -> int:
    target = resolve_target(settings)
    async with target.reading() as reader:
        job = await find_job(reader, name, target.namespace)
    return await wait_and_report(target, settings, job, states, limit, form=form)


async def wait_and_report(
    target: ClusterTarget,
    settings: GlobalOptions,
    job: ClusterJob,
    states: Sequence[str],
    limit: float | None,
    *,
    watches: bool = False,
    form: str | None = None,
) -> int:
    """Waits, prints the result, and returns the exit code."""
    clock = SystemClock()
    wanted = WaitGoal(states=[state.lower() for state in states], limit=limit, prints_changes=watches)
    met = await wait_for_job(target, job, wanted, clock, settings.terminal())
    seconds = met.follower.progress.elapsed(clock.now())
    if met.is_detached:
        print_note(f"Detached from {job.name}: it continues in {job.key.namespace} on {target.name}.")
        print_note("\n".join(next_commands(target.command_prefix, job.command_key, WHILE_RUNNING)))
    click.echo(_result_line(met, job, seconds) if form is None else FORMATTERS[form](_fields(met, job, seconds)))
    return met.exit_code


def _result_line(met: WaitResult, job: ClusterJob, seconds: float) -> str:
    if met.follower.is_deleted:
        return f"{met.state}  {job.key.name}"
    return f"{met.state}  {job.key.name} after {duration_text(seconds)}"


def _fields(met: WaitResult, job: ClusterJob, seconds: float) -> dict[str, object]:
    facts = {
        "name": job.key.name,
        "namespace": job.key.namespace,
        "job": job.name,
        "state": met.state,
        "seconds": round(seconds, 3),
        "exitCode": met.exit_code,
    }
    return dict(document("Waited", facts))
