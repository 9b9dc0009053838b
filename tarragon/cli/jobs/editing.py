"""Applies one change to several existing jobs. Changes are idempotent: repeating one has no effect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import click

from tarragon.base.clock import Clock
from tarragon.base.errors import TarragonError
from tarragon.cli.jobs.selection import JobSelection, note_start, select_jobs
from tarragon.cli.jobview.exit_code import DELETED, UNFINISHED
from tarragon.cli.jobview.jobs import ClusterJob, NoSuchJob, pods_of, read_job
from tarragon.cli.jobview.live import JobWatch
from tarragon.cli.jobview.target import ClusterTarget
from tarragon.cli.options.arguments import WaitOptions
from tarragon.cli.options.error_output import error_text
from tarragon.cli.options.notes import print_note
from tarragon.cli.output.prose import print_message
from tarragon.cli.output.words import duration_text
from tarragon.client.errors import Conflict
from tarragon.client.port import Client
from tarragon.kube.core import Pod
from tarragon.kube.merge_patch import create_merge_patch
from tarragon.kube.meta import JsonObject

_ATTEMPTS = 5


class JobNotEditable(TarragonError):
    """The job exists, but the change is not possible."""


def job_has_ended(job: ClusterJob, verb: str) -> JobNotEditable:
    return JobNotEditable(
        f"can't {verb} {job.name}: it has ended ({job.state})", remedy="submit it again to run it again"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEdit:
    """A change to a job. `edited_manifest` returns the complete changed manifest, or raises JobNotEditable."""

    in_progress_verb: str
    """`Suspending`"""
    past_participle: str
    """`suspended`"""
    edited_manifest: Callable[[ClusterJob, JsonObject], JsonObject]
    is_applied: Callable[[ClusterJob, Sequence[Pod]], bool]
    """Whether the cluster has carried out the change; used by `--wait`. Raises JobNotEditable when it never will."""
    notes: Callable[[ClusterJob, ClusterJob], Sequence[str]] = lambda _, __: ()
    """Notes about a job before and after the change, printed on stderr."""


async def edit_jobs(
    target: ClusterTarget, choice: JobSelection, edit: JobEdit, clock: Clock, patience: WaitOptions
) -> int:
    """Change the selected jobs and return the highest exit code. One that can't be changed does not stop the others."""
    async with target.selecting() as reader:
        jobs, missing = await select_jobs(reader, choice, target.namespace)
    for each in missing:
        print_message(error_text(each))
    codes = [NoSuchJob.exit_code for _ in missing]
    if not jobs:
        return max(codes, default=0)
    note_start(target, jobs)
    async with target.writing(clock) as cluster:
        changed: list[ClusterJob] = []
        for job in jobs:
            try:
                changed.append(await _edit(cluster, target, job, edit))
            except JobNotEditable as error:
                print_message(error_text(error))
                codes.append(error.exit_code)
        if patience.waits:
            codes += await _wait_for_all(cluster, changed, edit, clock, patience.limit)
    return max(codes, default=0)


async def _edit(cluster: Client, target: ClusterTarget, job: ClusterJob, edit: JobEdit) -> ClusterJob:
    """Patch the job with a resourceVersion precondition. After a conflict, read it again and repeat the change."""
    resource = job.framework.resource.with_model(dict)
    for _ in range(_ATTEMPTS):
        before = await cluster.get(resource, job.key)
        after = edit.edited_manifest(job, before)
        patch = create_merge_patch(before, after)
        if not patch:
            click.echo(f"{job.name} unchanged: already {edit.past_participle}")
            return job
        precondition = {"resourceVersion": before["metadata"]["resourceVersion"]}
        patch["metadata"] = {**patch.get("metadata", {}), **precondition}
        try:
            found = await cluster.patch(job.framework.resource, job.key, patch)
        except Conflict:
            continue
        print_note(f"{edit.in_progress_verb} {job.name} in {job.key.namespace} on {target.name}")
        now = replace(read_job(job.framework, found), is_offline=False)
        for note in edit.notes(job, now):
            print_note(note)
        click.echo(f"{job.name} {edit.past_participle}")
        return now
    raise JobNotEditable(f"{job.name} was modified by others {_ATTEMPTS} times in a row", remedy="try again")


async def _wait_for_all(
    cluster: Client, jobs: Sequence[ClusterJob], edit: JobEdit, clock: Clock, limit: float | None
) -> Sequence[int]:
    """Wait until the change is carried out on all jobs. Returns the exit code of each."""
    waiting = [asyncio.create_task(_wait_for(cluster, job, edit, clock)) for job in jobs]
    if not waiting:
        return []
    done, late = await asyncio.wait(waiting, timeout=limit)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    for task, job in zip(waiting, jobs, strict=True):
        if task in late:
            click.echo(
                f"{job.name} is not {edit.past_participle} after {duration_text(limit or 0)}; the change continues.",
                err=True,
            )
    return [*(task.result() for task in done), *(UNFINISHED for _ in late)]


async def _wait_for(cluster: Client, job: ClusterJob, edit: JobEdit, clock: Clock) -> int:
    """Wait until the change is carried out. Returns 0, 1 if it never will be, or 103 if the job is deleted first."""
    live = JobWatch(cluster, job, clock)
    async with live.watching():
        while True:
            await live.wait_for_change()
            if live.error is not None:
                raise live.error
            if live.job is None:
                click.echo(f"{job.name} was deleted.", err=True)
                return DELETED
            now = read_job(job.framework, live.job)
            try:
                if edit.is_applied(now, [pod for _, pod in pods_of(now, live.pods)]):
                    return 0
            except JobNotEditable as error:
                print_message(error_text(error))
                return error.exit_code
