"""Deletes a job: with the grace period of its pods, or at once."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from tarragon.base.clock import Clock
from tarragon.cli.jobview.jobs import ClusterJob, pods_of
from tarragon.cli.jobview.live import JobWatch
from tarragon.cli.jobview.pod_templates import pod_templates
from tarragon.cli.jobview.target import Notify
from tarragon.cli.output.words import joined
from tarragon.client.errors import NotFound
from tarragon.client.port import Client, DeleteOptions, Selector
from tarragon.kube.core import PODS
from tarragon.kube.meta import Json

SLOW_AFTER = 5.0
"""Seconds after which a waiting user is told which replicas still exist."""
DEFAULT_GRACE = 30
"""Seconds that Kubernetes gives a pod between SIGTERM and SIGKILL if its spec says nothing."""
KILL_GRACE = 1
"""Seconds between SIGTERM and SIGKILL for pods that are killed. With 0, the API server would remove a pod at once,
while its processes still run: nobody could wait for their end."""


async def delete_job(cluster: Client, job: ClusterJob, clock: Clock, note: Notify = lambda _: None) -> None:
    """Deletes the job and returns when its pods are gone too. Ignores a missing job. Calls `note` if it takes long."""
    await start_deletion(cluster, job)
    await wait_until_deleted(cluster, job, clock, note)


async def start_deletion(cluster: Client, job: ClusterJob) -> None:
    """Asks the cluster to delete the job. Ignores a missing job."""
    with suppress(NotFound):
        options = DeleteOptions(uid=job.uid, propagation_policy="Foreground")
        await cluster.delete(job.framework.resource, job.key, options)


async def wait_until_deleted(cluster: Client, job: ClusterJob, clock: Clock, note: Notify) -> None:
    """Returns when the job and its pods are gone."""
    live = JobWatch(cluster, job, clock)
    async with live.watching():
        slow_note = asyncio.create_task(_note_if_slow(live, job, clock, note))
        try:
            await live.wait_for_change()
            while live.job is not None and live.error is None:
                await live.wait_for_change()
        finally:
            slow_note.cancel()
    if live.error is not None:
        raise live.error


async def _note_if_slow(live: JobWatch, job: ClusterJob, clock: Clock, note: Notify) -> None:
    """Names the remaining replicas after SLOW seconds. Pods on a lost node stay until they are deleted with force."""
    await clock.sleep(SLOW_AFTER)
    remaining = joined(
        sorted(f"{replica} on {pod.spec.node_name or 'no node'}" for replica, pod in pods_of(job, live.pods))
    )
    note(
        f"{job.name} is terminating; remaining: {remaining or 'the job itself'}. "
        "Ctrl-C stops waiting, the deletion continues."
    )


def longest_grace(job: ClusterJob) -> int:
    """Returns the seconds after which the last replica of a deleted job is killed."""
    specs = [template["spec"] for _, template in pod_templates({"spec": job.object.spec})]
    return max((_grace(spec.get("terminationGracePeriodSeconds")) for spec in specs), default=DEFAULT_GRACE)


def _grace(seconds: Json) -> int:
    return seconds if isinstance(seconds, int) else DEFAULT_GRACE


async def kill_job(cluster: Client, job: ClusterJob) -> None:
    """Deletes the job and kills its pods after `KILL_GRACE` seconds. Does not wait for them."""
    listing = await cluster.list(PODS, Selector(namespace=job.key.namespace, label_selector=job.selector))
    with suppress(NotFound):
        await cluster.delete(
            job.framework.resource, job.key, DeleteOptions(uid=job.uid, propagation_policy="Background")
        )
    for _, pod in pods_of(job, listing.items):
        with suppress(NotFound):
            options = DeleteOptions(uid=pod.metadata.uid, grace_period_seconds=KILL_GRACE)
            await cluster.delete(PODS, pod.metadata.key, options)


async def wait_until_pods_gone(cluster: Client, job: ClusterJob, clock: Clock) -> None:
    """Returns when no pod of the job exists: the kubelet removes one when its processes have ended."""
    live = JobWatch(cluster, job, clock)
    async with live.watching():
        await live.wait_for_change()
        while live.error is None and any(True for _ in pods_of(job, live.pods)):
            await live.wait_for_change()
    if live.error is not None:
        raise live.error
