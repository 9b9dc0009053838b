"""Evicts pods gracefully: annotations on the pod announce the eviction, and the pod is deleted when its grace ends.

The program may write a checkpoint in that time. All state is in the annotations, so that a restarted operator neither
announces an eviction twice nor shortens the grace.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tarragon.job.annotations import MAX_CHECKPOINT_SECONDS, checkpoint_seconds
from tarragon.job.eviction_notice import (
    CHECKPOINT_REQUEST_ANNOTATION,
    EVICTION_TIME_ANNOTATION,
    checkpoint_requested_at,
    eviction_time,
    exited_after_notice,
)
from tarragon.job.replica_state import ReplicaAction, main_container_status
from tarragon.kube.codec import format_time
from tarragon.kube.core import PODS, Pod
from tarragon.plan.view.actions import AnnotatePod, Delete
from tarragon.plan.view.job_view import JobView


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEviction:
    """A pod that is to be deleted."""

    pod: Pod
    reason: str
    has_grace: bool = False
    """Whether the program gets time to save: it would run on if its resources had not been taken away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionActions:
    """The writes that evict pods: annotations now, deletions of the pods whose grace is over."""

    annotations: Sequence[AnnotatePod] = ()
    deletes: Sequence[Delete] = ()
    next_deletion_at: dt.datetime | None = None
    """When the grace of the next pod ends."""


def evict_pods(view: JobView, evictions: Sequence[PodEviction]) -> EvictionActions:
    """Announce evictions, delete pods whose grace is over, and withdraw the announcement from pods that may stay."""
    pending = [each for each in evictions if not each.pod.metadata.is_being_deleted]
    grace_ends = {each.pod.metadata.uid: _grace_ends_at(view, each) for each in pending}
    in_grace = [each for each in pending if (at := grace_ends[each.pod.metadata.uid]) is not None and at > view.now]
    unannounced = [each for each in in_grace if _announced_end(view, each.pod) is None]
    notices = [_announcement(view, each, grace_ends[each.pod.metadata.uid]) for each in unannounced]
    notices += _withdrawals(view, {each.pod.metadata.uid for each in evictions})
    return EvictionActions(
        annotations=[*notices, *_checkpoint_requests(view, pending, in_grace)],
        deletes=[delete_pod(each.pod, each.reason) for each in pending if each not in in_grace],
        next_deletion_at=min((at for at in grace_ends.values() if at is not None and at > view.now), default=None),
    )


def delete_pod(pod: Pod, reason: str) -> Delete:
    return Delete(
        resource=PODS,
        key=pod.metadata.key,
        uid=pod.metadata.uid,
        resource_version=pod.metadata.resource_version,
        reason=reason,
    )


def _grace_ends_at(view: JobView, eviction: PodEviction) -> dt.datetime | None:
    """Return when the pod's grace ends; None to delete it now. An announced end holds, whatever the job says now."""
    pod = eviction.pod
    if pod.status.phase != "Running" or exited_after_notice(
        pod, main_container_status(pod, view.framework.main_container)
    ):
        return None
    announced = _announced_end(view, pod)
    if announced is not None:
        return announced
    seconds = checkpoint_seconds(view.job) if eviction.has_grace else 0
    if not seconds:
        return None
    # The annotation has whole seconds. The end is rounded up, so that the program has all the seconds it asked for.
    return view.now.replace(microsecond=0) + dt.timedelta(seconds=seconds + (view.now.microsecond > 0))


def _announced_end(view: JobView, pod: Pod) -> dt.datetime | None:
    """Return the announced end of the grace. One beyond the longest possible grace is not ours and is ignored."""
    at = eviction_time(pod)
    return at if at is not None and at <= view.now + dt.timedelta(seconds=MAX_CHECKPOINT_SECONDS + 1) else None


def _announcement(view: JobView, eviction: PodEviction, ends_at: dt.datetime | None) -> AnnotatePod:
    annotations = {
        CHECKPOINT_REQUEST_ANNOTATION: format_time(view.now),
        EVICTION_TIME_ANNOTATION: format_time(ends_at or view.now),
    }
    return _notice(eviction.pod, annotations, otherwise=delete_pod(eviction.pod, eviction.reason))


def _withdrawals(view: JobView, evicted_uids: set[str]) -> Iterator[AnnotatePod]:
    for member in view.members.values():
        pod = member.pod
        if (
            EVICTION_TIME_ANNOTATION in pod.metadata.annotations
            and pod.metadata.uid not in evicted_uids
            and member.action is ReplicaAction.CONTINUE
        ):
            yield _notice(pod, {EVICTION_TIME_ANNOTATION: None, CHECKPOINT_REQUEST_ANNOTATION: None})


def _checkpoint_requests(
    view: JobView, pending: Sequence[PodEviction], in_grace: Sequence[PodEviction]
) -> Iterator[AnnotatePod]:
    """Ask the chief for a checkpoint when other replicas are evicted: usually the chief writes the checkpoints."""
    chief = view.members.get(view.job.chief) if view.job.chief is not None else None
    if not in_grace or chief is None or not chief.is_pod_running:
        return
    if any(each.pod.metadata.uid == chief.pod.metadata.uid for each in pending):
        return
    latest_request = max(checkpoint_requested_at(each.pod) or view.now.replace(microsecond=0) for each in in_grace)
    last_request = checkpoint_requested_at(chief.pod)
    if last_request is None or last_request < latest_request:
        yield _notice(chief.pod, {CHECKPOINT_REQUEST_ANNOTATION: format_time(latest_request)})


def _notice(pod: Pod, annotations: Mapping[str, str | None], otherwise: Delete | None = None) -> AnnotatePod:
    metadata = pod.metadata
    return AnnotatePod(
        pod=metadata.key,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        annotations=annotations,
        fallback=otherwise,
    )
