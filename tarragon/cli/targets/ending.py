"""Ending a job: its replicas get their grace, then it is gone; or they get none."""

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
"""Seconds after which whoever waits is told for whom."""


async def delete(cluster: Cluster, job: Known, clock: Clock, note: Note = lambda _: None) -> None:
    """Return when it and its pods are gone. One that is gone already is no error. `note` is called if it takes long."""
    await begin(cluster, job)
    await gone(cluster, job, clock, note)


async def begin(cluster: Cluster, job: Known) -> None:
    """Return when the cluster has agreed to it."""
    with suppress(NotFound):
        options = DeleteOptions(uid=job.uid, propagation="Foreground")
        await cluster.delete(job.framework.resource, job.key, options)


async def gone(cluster: Cluster, job: Known, clock: Clock, note: Note) -> None:
    """Return when it and its pods are gone."""
    live = Live(cluster, job, clock)
    async with live.watching():
        telling = asyncio.create_task(_tell_if_slow(live, job, clock, note))
        try:
            await live.changed()
            while live.job is not None and live.trouble is None:
                await live.changed()
        finally:
            telling.cancel()
    if live.trouble is not None:
        raise live.trouble


async def _tell_if_slow(live: Live, job: Known, clock: Clock, note: Note) -> None:
    """A node that is gone confirms no end: its pods stay for as long as nobody forces them."""
    await clock.sleep(SLOW)
    ending = listed(
        sorted(f"{replica} on {pod.spec.node_name or 'no node'}" for replica, pod in pods_of(job, live.pods))
    )
    note(f"{job.name} is ending; still there: {ending or 'the job itself'}. Ctrl-C ends the waiting alone.")


async def kill(cluster: Cluster, job: Known) -> None:
    """End its replicas without any grace, and take it away."""
    listing = await cluster.list(PODS, Selection(namespace=job.key.namespace, labels=job.selector))
    with suppress(NotFound):
        await cluster.delete(job.framework.resource, job.key, DeleteOptions(uid=job.uid, propagation="Background"))
    for _, pod in pods_of(job, listing.items):
        with suppress(NotFound):
            await cluster.delete(PODS, pod.metadata.key, DeleteOptions(uid=pod.metadata.uid, grace_seconds=0))
