"""`tarragon wait` and `submit --wait`: waits for jobs and prints their results."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import click

from tarragon.base.clock import Clock, SystemClock
from tarragon.cli.follow.awaiting import WaitGoal, WaitResult, wait_for_job
from tarragon.cli.jobview.jobs import ClusterJob
from tarragon.cli.jobview.schema import document
from tarragon.cli.jobview.target import ClusterTarget
from tarragon.cli.options.formats import FORMATTERS, list_object
from tarragon.cli.options.notes import print_note
from tarragon.cli.output.interrupts import handled_signals
from tarragon.cli.output.words import count, duration_text
from tarragon.cli.targets.next_commands import WHILE_RUNNING, next_commands


async def wait_and_report(
    target: ClusterTarget, jobs: Sequence[ClusterJob], wanted: WaitGoal, form: str | None = None
) -> int:
    """Waits for all jobs, and prints the result of each as soon as there is one; documents, at the end.

    Returns the exit code of the first job, in the given order, that has not succeeded; 0 if there is none.
    """
    clock = SystemClock()
    with handled_signals() as signals:
        left = [job for job in jobs if not job.status.phase.is_final and job.state.lower() not in wanted.states]
        if left and wanted.limit is None:
            noun = left[0].name if len(left) == 1 else count(len(left), "job")
            print_note(f"Waiting for {noun} without a time limit; --timeout sets one.")

        async def result_of(job: ClusterJob) -> WaitResult:
            met = await wait_for_job(target, job, wanted, clock, signals)
            _report(target, job, met, _result_line(met, job, clock) if form is None else "")
            return met

        waiting = [asyncio.create_task(result_of(job)) for job in jobs]
        try:
            results = await asyncio.gather(*waiting)
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
    if form is not None:
        documents = [_fields(met, job, clock) for met, job in zip(results, jobs, strict=True)]
        click.echo(FORMATTERS[form](documents[0] if len(documents) == 1 else list_object(documents)))
    return next((met.exit_code for met in results if met.exit_code), 0)


def _report(target: ClusterTarget, job: ClusterJob, met: WaitResult, line: str) -> None:
    if met.is_detached:
        print_note(f"Detached from {job.name}: it continues in {job.key.namespace} on {target.name}.")
        print_note("\n".join(next_commands(target.command_prefix, job.command_key, WHILE_RUNNING)))
    if line:
        click.echo(line)


def _result_line(met: WaitResult, job: ClusterJob, clock: Clock) -> str:
    if met.follower.is_deleted:
        return f"{met.state}  {job.key.name}"
    return f"{met.state}  {job.key.name} after {duration_text(_seconds(met, clock))}"


def _seconds(met: WaitResult, clock: Clock) -> float:
    return met.follower.progress.elapsed(clock.now())


def _fields(met: WaitResult, job: ClusterJob, clock: Clock) -> dict[str, object]:
    facts = {
        "name": job.key.name,
        "namespace": job.key.namespace,
        "job": job.name,
        "state": met.state,
        "seconds": round(_seconds(met, clock), 3),
        "exitCode": met.exit_code,
    }
    return dict(document("Waited", facts))
