"""Applies one change to several existing jobs. Changes are idempotent: repeating one has no effect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import click

from tarragon.base.clock import Clock
from tarragon.base.errors import TarragonError
from tarragon.cli.jobs.selection import Choice, chosen
from tarragon.cli.jobview.exit_code import GONE, UNFINISHED
from tarragon.cli.jobview.jobs import Known, NoSuchJob, known, pods_of
from tarragon.cli.jobview.live import Live
from tarragon.cli.jobview.target import Target
from tarragon.cli.options.arguments import Patience
from tarragon.cli.options.error_output import words
from tarragon.cli.output.words import elapsed
from tarragon.client.errors import Conflict
from tarragon.client.port import Cluster
from tarragon.kube.core import Pod
from tarragon.kube.meta import JsonObject
from tarragon.kube.patch import difference

_ATTEMPTS = 5


class CannotChange(TarragonError):
    """The job exists, but the change is not possible."""


def has_ended(job: Known, verb: str) -> CannotChange:
    return CannotChange(
        f"can't {verb} {job.name}: it has ended ({job.state})", remedy="submit it again to run it again"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A change to a job. `wanted` returns the complete changed manifest, or raises CannotChange."""

    doing: str
    """`Suspending`"""
    done: str
    """`suspended`"""
    wanted: Callable[[Known, JsonObject], JsonObject]
    has_come: Callable[[Known, Sequence[Pod]], bool]
    """Whether the cluster has carried out the change; used by `--wait`."""
    note: Callable[[Known], str] = lambda _: ""
    """A note about a changed job, printed on stderr; empty for none."""


async def edit_all(where: Target, choice: Choice, edit: Edit, clock: Clock, patience: Patience) -> int:
    """Change the selected jobs and return the highest exit code. One that can't be changed does not stop the others."""
    async with where.looking() as looker:
        jobs, missing = await chosen(looker, choice, where.namespace)
    for each in missing:
        click.echo(words(each), err=True)
    codes = [NoSuchJob.exit_code for _ in missing]
    if not jobs:
        return max(codes, default=0)
    async with where.changing(clock) as cluster:
        changed: list[Known] = []
        for job in jobs:
            try:
                changed.append(await _edit(cluster, where, job, edit))
            except CannotChange as error:
                click.echo(words(error), err=True)
                codes.append(error.exit_code)
        if patience.waits:
            codes += await _wait_for_all(cluster, changed, edit, clock, patience.limit)
    return max(codes, default=0)


async def _edit(cluster: Cluster, where: Target, job: Known, edit: Edit) -> Known:
    """Patch the job with a resourceVersion precondition. After a conflict, read it again and repeat the change."""
    resource = job.framework.resource.reading(dict)
    for _ in range(_ATTEMPTS):
        before = await cluster.get(resource, job.key)
        after = edit.wanted(job, before)
        patch = difference(before, after)
        if not patch:
            click.echo(f"{job.name} unchanged: already {edit.done}")
            return job
        precondition = {"resourceVersion": before["metadata"]["resourceVersion"]}
        patch["metadata"] = {**patch.get("metadata", {}), **precondition}
        try:
            found = await cluster.patch(job.framework.resource, job.key, patch)
        except Conflict:
            continue
        click.echo(f"{edit.doing} {job.name} in {job.key.namespace} on {where.name}", err=True)
        now = replace(known(job.framework, found), is_stored=False)
        if note := edit.note(now):
            click.echo(note, err=True)
        click.echo(f"{job.name} {edit.done}")
        return now
    raise CannotChange(f"{job.name} was modified by others {_ATTEMPTS} times in a row", remedy="try again")


async def _wait_for_all(
    cluster: Cluster, jobs: Sequence[Known], edit: Edit, clock: Clock, limit: float | None
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
            click.echo(f"{job.name} is not {edit.done} after {elapsed(limit or 0)}; the change continues.", err=True)
    return [*(task.result() for task in done), *(UNFINISHED for _ in late)]


async def _wait_for(cluster: Cluster, job: Known, edit: Edit, clock: Clock) -> int:
    """Wait until the change is carried out. Returns 0, or 103 if the job is deleted first."""
    live = Live(cluster, job, clock)
    async with live.watching():
        while True:
            await live.changed()
            if live.trouble is not None:
                raise live.trouble
            if live.job is None:
                click.echo(f"{job.name} was deleted.", err=True)
                return GONE
            now = known(job.framework, live.job)
            if edit.has_come(now, [pod for _, pod in pods_of(now, live.pods)]):
                return 0
