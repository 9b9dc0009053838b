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
MOST_LATE = 3
"""How many pods are named that have not ended in time."""
_OF_KUBERNETES = frozenset({"foregroundDeletion", "orphan"})
"""Finalizers that Kubernetes removes by itself, once what the job owns is gone."""

_Ending = tuple[Replica, Pod]


async def pods_to_explain(reader: ClusterReader, job: ClusterJob) -> Sequence[Pod]:
    """Returns the pods of a job that is deleted or suspended. There are none if this user may not list them."""
    if job.state != STOPPING and job.status.phase is not Phase.SUSPENDED:
        return ()
    try:
        listing = await reader.list(PODS, Selector(namespace=job.key.namespace, label_selector=job.selector))
    except Forbidden:
        return ()
    return listing.items


def ending_lines(job: ClusterJob, pods: Sequence[Pod], now: dt.datetime, *, is_local: bool) -> Iterator[str]:
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
    in_time, late = _by_lateness(ending, now)
    yield from _in_time(in_time, now)
    yield from _late_here(late, now) if is_local else _late(late, now)
    finalizers = [name for name in job.object.metadata.finalizers if name not in _OF_KUBERNETES]
    if not ending and job.state == STOPPING and finalizers:
        yield f"  its finalizers keep it: {joined(finalizers)}; whoever has set them must remove them"


def _in_time(ending: Sequence[_Ending], now: dt.datetime) -> Iterator[str]:
    if not ending:
        return
    deadline = max(_deadline(pod, now) for _, pod in ending)
    names = joined([str(replica) for replica, _ in ending])
    verb = "ends" if len(ending) == 1 else "end"
    yield (
        f"  {names} still {verb}, until {format_time(deadline)} at the latest (in {span(deadline - now)}): "
        "what runs then is killed (terminationGracePeriodSeconds)"
    )


def _by_lateness(ending: Sequence[_Ending], now: dt.datetime) -> tuple[Sequence[_Ending], Sequence[_Ending]]:
    """Returns the pods that may still end in time, and those that are late."""
    groups: tuple[list[_Ending], list[_Ending]] = ([], [])
    for each in ending:
        groups[_deadline(each[1], now) + LATE_AFTER < now].append(each)
    return groups


def _late(late: Sequence[_Ending], now: dt.datetime) -> Iterator[str]:
    for replica, pod in late[:MOST_LATE]:
        yield (
            f"  {replica} was to end {age(pod.metadata.deletion_timestamp, now)} ago; if its node "
            f"{pod.spec.node_name or '(none)'} is gone for good, remove its pod: "
            f"kubectl -n {pod.metadata.namespace} delete pod {pod.metadata.name} --force"
        )
    if len(late) > MOST_LATE:
        namespace = late[0][1].metadata.namespace
        yield f"  and {len(late) - MOST_LATE} more were to end by now: kubectl -n {namespace} get pods"


def _late_here(late: Sequence[_Ending], now: dt.datetime) -> Iterator[str]:
    """No node of this machine can be gone, and its processes would outlive a pod that is only removed."""
    if not late:
        return
    names = joined([str(replica) for replica, _ in late], most=MOST_LATE)
    first = age(min(_deadline(pod, now) for _, pod in late), now)
    were = f"was to end {first} ago" if len(late) == 1 else f"were to end by now, the first of them {first} ago"
    yield (
        f"  {names} {were}; `tarragon down` ends all that runs in the local cluster; other jobs start anew when the "
        "next command starts it"
    )


def _deadline(pod: Pod, now: dt.datetime) -> dt.datetime:
    """The deletion timestamp of a pod is when its grace period ends."""
    return pod.metadata.deletion_timestamp or now
