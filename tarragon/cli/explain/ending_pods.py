"""What a job waits for that is deleted or suspended: the pods that have been told to end, and until when they may."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence

from tarragon.cli.jobview.jobs import ClusterJob, pods_of
from tarragon.cli.jobview.progress import STOPPING, replica_order
from tarragon.cli.jobview.target import ClusterReader
from tarragon.cli.output.words import age, joined, span
from tarragon.client.errors import Forbidden
from tarragon.client.port import Selector
from tarragon.job.model import Replica
from tarragon.job.phase import Phase
from tarragon.kube.codec import format_time
from tarragon.kube.core import PODS, Pod

LATE_AFTER = dt.timedelta(seconds=10)
"""The kubelet needs a moment to kill a pod at the end of its grace period, and to say so."""
_OF_KUBERNETES = frozenset({"foregroundDeletion", "orphan"})
"""Finalizers that Kubernetes removes by itself, once what the job owns is gone."""


async def pods_to_explain(reader: ClusterReader, job: ClusterJob) -> Sequence[Pod]:
    """Returns the pods of a job that is deleted or suspended. There are none if this user may not list them."""
    if job.state != STOPPING and job.status.phase is not Phase.SUSPENDED:
        return ()
    try:
        listing = await reader.list(PODS, Selector(namespace=job.key.namespace, label_selector=job.selector))
    except Forbidden:
        return ()
    return listing.items


def ending_lines(job: ClusterJob, pods: Sequence[Pod], now: dt.datetime) -> Iterator[str]:
    """Yields which replicas still end and when they are killed, or what else keeps the deleted job."""
    if job.state != STOPPING and job.status.phase is not Phase.SUSPENDED:
        return
    order = replica_order(job.requested)
    ending = sorted(
        ((replica, pod) for replica, pod in pods_of(job, pods) if pod.metadata.is_being_deleted),
        key=lambda each: order(each[0]),
    )
    if job.is_offline:
        if ending or job.state == STOPPING:
            yield "  the local cluster is not running; it goes on with this when it is started (`tarragon up`)"
        return
    late = [each for each in ending if _deadline(each[1], now) + LATE_AFTER < now]
    yield from _in_time([each for each in ending if each not in late], now)
    for replica, pod in late:
        yield (
            f"  {replica} was to end {age(pod.metadata.deletion_timestamp, now)} ago; if its node "
            f"{pod.spec.node_name or '(none)'} is gone for good, remove its pod: "
            f"kubectl -n {job.key.namespace} delete pod {pod.metadata.name} --force"
        )
    finalizers = [name for name in job.object.metadata.finalizers if name not in _OF_KUBERNETES]
    if not ending and job.state == STOPPING and finalizers:
        yield f"  its finalizers keep it: {joined(finalizers)}; whoever has set them must remove them"


def _in_time(ending: Sequence[tuple[Replica, Pod]], now: dt.datetime) -> Iterator[str]:
    if not ending:
        return
    deadline = max(_deadline(pod, now) for _, pod in ending)
    names = joined([str(replica) for replica, _ in ending])
    verb = "ends" if len(ending) == 1 else "end"
    yield (
        f"  {names} still {verb}, until {format_time(deadline)} at the latest (in {span(deadline - now)}): "
        "what runs then is killed (terminationGracePeriodSeconds)"
    )


def _deadline(pod: Pod, now: dt.datetime) -> dt.datetime:
    """The deletion timestamp of a pod is when its grace period ends."""
    return pod.metadata.deletion_timestamp or now
