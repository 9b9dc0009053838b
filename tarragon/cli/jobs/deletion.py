"""Deletes jobs for `tarragon delete`, and reports what is kept."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

import click

from tarragon.base.clock import Clock
from tarragon.cli.jobs.selection import Choice, chosen
from tarragon.cli.jobview.jobs import Known, NoSuchJob
from tarragon.cli.jobview.leftovers import used
from tarragon.cli.jobview.target import Target
from tarragon.cli.manifest.dependencies import may_exist
from tarragon.cli.options.error_output import words
from tarragon.cli.options.settings import Settings
from tarragon.cli.output.words import listed
from tarragon.cli.targets.ending import begin, gone
from tarragon.cli.targets.next_commands import spelled
from tarragon.cli.targets.resolving import target
from tarragon.cli.targets.stored_logs import runs_of_job
from tarragon.client.port import Cluster
from tarragon.kube.core import CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, SECRETS
from tarragon.kube.meta import Key

_RESOURCES = MappingProxyType({each.kind: each for each in (CONFIG_MAPS, SECRETS, PERSISTENT_VOLUME_CLAIMS)})


async def delete_chosen(settings: Settings, wanted: Choice, clock: Clock) -> int:
    """Delete the selected jobs and return the exit code. A job that is not found does not stop the others."""
    where = target(settings)
    async with where.looking() as looker:
        jobs, missing = await chosen(looker, wanted, where.namespace)
    if jobs:
        await _delete_all(where, jobs, clock)
    for each in missing:
        click.echo(words(each), err=True)
    return NoSuchJob.exit_code if missing else 0


async def _delete_all(where: Target, jobs: Sequence[Known], clock: Clock) -> None:
    async with where.changing(clock) as http:
        for job in jobs:
            await begin(http, job)
            # Printed after the request succeeded, so that a user who may not delete the job does not read it.
            click.echo(f"Deleting {job.name} in {job.key.namespace} on {where.name}", err=True)
            await gone(http, job, clock, lambda text: click.echo(text, err=True))
            click.echo(f"{job.name} deleted")
            note = _kept(where, job, await still_there(http, job))
            if note:
                click.echo(note, err=True)


async def still_there(cluster: Cluster, job: Known) -> Sequence[str]:
    """Return the existing ConfigMaps, Secrets and volume claims that the job used.

    An object that this user may not read counts as existing.
    """
    return [
        f"{kind} {name}"
        for kind, name in used({"spec": job.object.spec})
        if await may_exist(cluster, _RESOURCES[kind], Key(job.key.namespace, name))
    ]


def _kept(where: Target, job: Known, others: Sequence[str]) -> str:
    """Name what is kept. A job that never started has no logs."""
    logs = f"Its logs are kept: {spelled(where.prompt, job.address, 'logs')}" if runs_of_job(where.nodes, job) else ""
    shared = f"{'also kept' if logs else 'Kept'}, as other jobs may use them: {listed(others)}" if others else ""
    return "; ".join(part for part in (logs, shared) if part)
