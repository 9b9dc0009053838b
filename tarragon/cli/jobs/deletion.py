"""Deletes jobs for `tarragon delete`, and reports what is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import MappingProxyType

import click

from tarragon.base.clock import Clock
from tarragon.cli.jobs.selection import JobSelection, note_start, select_jobs
from tarragon.cli.jobview.jobs import ClusterJob, NoSuchJob
from tarragon.cli.jobview.leftovers import used_objects
from tarragon.cli.jobview.target import ClusterTarget
from tarragon.cli.manifest.dependencies import may_exist
from tarragon.cli.options.error_output import error_text
from tarragon.cli.options.notes import print_note
from tarragon.cli.options.settings import GlobalOptions
from tarragon.cli.output.prose import print_message
from tarragon.cli.output.words import joined
from tarragon.cli.targets.ending import start_deletion, wait_until_deleted
from tarragon.cli.targets.next_commands import command_line
from tarragon.cli.targets.resolving import resolve_target
from tarragon.cli.targets.stored_logs import runs_of_job
from tarragon.client.port import Client
from tarragon.kube.core import CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, SECRETS
from tarragon.kube.meta import Key

_RESOURCES = MappingProxyType({each.kind: each for each in (CONFIG_MAPS, SECRETS, PERSISTENT_VOLUME_CLAIMS)})


NOT_CONFIRMED = 1
"""The exit code if the user declines."""

Confirm = Callable[[str], bool]
"""Whether to do what the question says."""


def confirmed(question: str) -> bool:
    return click.confirm(question, err=True)


def unasked(_: str) -> bool:
    return True


def delete_jobs(settings: GlobalOptions, wanted: JobSelection, clock: Clock, confirm: Confirm = unasked) -> int:
    """Delete the selected jobs and return the exit code. A job that is not found does not stop the others."""
    target = resolve_target(settings)
    jobs, missing = asyncio.run(_selected(target, wanted))
    # Asked outside of the event loop, where Ctrl-C would only cancel what waits, and not the question.
    if jobs and not confirm(f"Delete {joined([job.name for job in jobs])} in {target.namespace} on {target.name}?"):
        return NOT_CONFIRMED
    if jobs:
        asyncio.run(_delete_all(target, jobs, clock))
    for each in missing:
        print_message(error_text(each))
    return NoSuchJob.exit_code if missing else 0


async def _selected(target: ClusterTarget, wanted: JobSelection) -> tuple[Sequence[ClusterJob], Sequence[NoSuchJob]]:
    async with target.selecting() as reader:
        return await select_jobs(reader, wanted, target.namespace)


async def _delete_all(target: ClusterTarget, jobs: Sequence[ClusterJob], clock: Clock) -> None:
    note_start(target, jobs)
    async with target.writing(clock) as http:
        await _start_all(target, http, jobs)
        kept: dict[str, None] = {}
        for job in jobs:
            await wait_until_deleted(http, job, clock, print_note)
            click.echo(f"{job.name} deleted")
            kept |= dict.fromkeys(await remaining_dependencies(http, job))
        print_note(_kept(target, jobs, [*kept]))


async def _start_all(target: ClusterTarget, cluster: Client, jobs: Sequence[ClusterJob]) -> None:
    """Delete all jobs at once: each may need its whole grace period. Print those that the user may delete."""
    started: list[str] = []
    try:
        for job in jobs:
            await start_deletion(cluster, job)
            started.append(job.name)
    finally:
        if started:
            print_note(f"Deleting {joined(started)} in {jobs[0].key.namespace} on {target.name}")


async def remaining_dependencies(cluster: Client, job: ClusterJob) -> Sequence[str]:
    """Return the existing ConfigMaps, Secrets and volume claims that the job used.

    An object that this user may not read counts as existing.
    """
    return [
        f"{kind} {name}"
        for kind, name in used_objects({"spec": job.object.spec})
        if await may_exist(cluster, _RESOURCES[kind], Key(job.key.namespace, name))
    ]


def _kept(target: ClusterTarget, jobs: Sequence[ClusterJob], others: Sequence[str]) -> str:
    """Name what is kept of the deleted jobs. A job that never started has no logs."""
    logged = [job for job in jobs if runs_of_job(target.nodes_folder, job)]
    logs = ""
    if logged:
        whose = "Its logs" if len(jobs) == 1 else "Their logs" if len(logged) > 1 else f"The logs of {logged[0].name}"
        key = logged[0].command_key if len(logged) == 1 else Key(logged[0].key.namespace, "JOB")
        logs = f"{whose} are kept: {command_line(target.command_prefix, key, 'logs')}"
    shared = f"{'also kept' if logs else 'Kept'}, as other jobs may use them: {joined(others)}" if others else ""
    return "; ".join(part for part in (logs, shared) if part)
