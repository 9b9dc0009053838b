"""Ending a job: its replicas get their grace, then it is gone; or they get none."""

from __future__ import annotations

from contextlib import suppress

from tarragon.base.clock import Clock
from tarragon.cli.follow.live import Live
from tarragon.cli.jobs import Known, pods_of
from tarragon.cluster.errors import NotFound
from tarragon.cluster.port import Cluster, DeleteOptions, Selection
from tarragon.kube.core import PODS


async def delete(cluster: Cluster, job: Known, clock: Clock) -> None:
    """Return when it and its pods are gone. One that is gone already is no error."""
    with suppress(NotFound):
        options = DeleteOptions(uid=job.uid, propagation="Foreground")
        await cluster.delete(job.framework.resource, job.key, options)
    live = Live(cluster, job, clock)
    async with live.watching():
        await live.changed()
        while live.job is not None and live.trouble is None:
            await live.changed()
    if live.trouble is not None:
        raise live.trouble


async def kill(cluster: Cluster, job: Known) -> None:
    """End its replicas without any grace, and take it away."""
    listing = await cluster.list(PODS, Selection(namespace=job.key.namespace, labels=job.selector))
    with suppress(NotFound):
        await cluster.delete(job.framework.resource, job.key, DeleteOptions(uid=job.uid, propagation="Background"))
    for _, pod in pods_of(job, listing.items):
        with suppress(NotFound):
            await cluster.delete(PODS, pod.metadata.key, DeleteOptions(uid=pod.metadata.uid, grace_seconds=0))
