"""Deletes a job: with the grace period of its pods, or at once."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from tarragon.base.clock import Clock
from tarragon.cli.jobview.jobs import Known, pods_of
from tarragon.cli.jobview.live import Live
from tarragon.cli.jobview.target import Note
from tarragon.cli.output.words import listed
from tarragon.client.errors import NotFound
from tarragon.client.port import Cluster, DeleteOptions, Selection
from tarragon.kube.core import PODS

SLOW = 5.0
"""Seconds after which a waiting user is told which replicas still exist."""


async def delete(cluster: Cluster, job: Known, clock: Clock, note: Note = lambda _: None) -> None:
    """Deletes the job and returns when its pods are gone too. Ignores a missing job. Calls `note` if it takes long."""
    await begin(cluster, job)
    await gone(cluster, job, clock, note)


async def begin(cluster: Cluster, job: Known) -> None:
    """Asks the cluster to delete the job. Ignores a missing job."""
    with suppress(NotFound):
        options = DeleteOptions(uid=job.uid, propagation="Foreground")
        await cluster.delete(job.framework.resource, job.key, options)


async def gone(cluster: Cluster, job: Known, clock: Clock, note: Note) -> None:
    """Returns when the job and its pods are gone."""
    live = Live(cluster, job, clock)
    async with live.watching():
        slow_note = asyncio.create_task(_note_if_slow(live, job, clock, note))
        try:
            await live.changed()
            while live.job is not None and live.trouble is None:
                await live.changed()
        finally:
            slow_note.cancel()
    if live.trouble is not None:
        raise live.trouble


async def _note_if_slow(live: Live, job: Known, clock: Clock, note: Note) -> None:
    """Names the remaining replicas after SLOW seconds. Pods on a lost node stay until they are deleted with force."""
    await clock.sleep(SLOW)
    remaining = listed(
        sorted(f"{replica} on {pod.spec.node_name or 'no node'}" for replica, pod in pods_of(job, live.pods))
    )
    note(
        f"{job.name} is terminating; remaining: {remaining or 'the job itself'}. "
        "Ctrl-C stops waiting, the deletion continues."
    )


async def kill(cluster: Cluster, job: Known) -> None:
    """Deletes the job and kills its pods without a grace period."""
    listing = await cluster.list(PODS, Selection(namespace=job.key.namespace, labels=job.selector))
    with suppress(NotFound):
        await cluster.delete(job.framework.resource, job.key, DeleteOptions(uid=job.uid, propagation="Background"))
    for _, pod in pods_of(job, listing.items):
        with suppress(NotFound):
            await cluster.delete(PODS, pod.metadata.key, DeleteOptions(uid=pod.metadata.uid, grace_seconds=0))
