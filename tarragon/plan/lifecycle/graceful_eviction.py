"""Evicts pods gracefully: annotations on the pod announce the eviction, and the pod is deleted when its grace ends.

The program may write a checkpoint in that time. All state is in the annotations, so that a restarted operator neither
announces an eviction twice nor shortens the grace.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tarragon.job.annotations import LONGEST_SAVING, seconds_to_save
from tarragon.job.leaving import CHECKPOINT, LEAVING, asked_to_save_at, leaves_at, left_by_itself
from tarragon.job.member import Fate, main_status
from tarragon.kube.codec import timestamp
from tarragon.kube.core import PODS, Pod
from tarragon.plan.view.actions import Delete, Notice
from tarragon.plan.view.job_view import Scene


@dataclass(frozen=True, slots=True, kw_only=True)
class Doomed:
    """A pod that is to be deleted."""

    pod: Pod
    why: str
    may_save: bool = False
    """Whether the program gets time to save: it would run on if its resources had not been taken away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """The writes that evict pods: annotations now, deletions of the pods whose grace is over."""

    notices: Sequence[Notice] = ()
    deletes: Sequence[Delete] = ()
    again: dt.datetime | None = None
    """When the grace of the next pod ends."""


def leave(view: Scene, evictions: Sequence[Doomed]) -> Leave:
    """Announce evictions, delete pods whose grace is over, and withdraw the announcement from pods that may stay."""
    pending = [each for each in evictions if not each.pod.metadata.is_ending]
    grace_ends = {each.pod.metadata.uid: _grace_ends_at(view, each) for each in pending}
    in_grace = [each for each in pending if (at := grace_ends[each.pod.metadata.uid]) is not None and at > view.now]
    unannounced = [each for each in in_grace if _announced_end(view, each.pod) is None]
    notices = [_announcement(view, each, grace_ends[each.pod.metadata.uid]) for each in unannounced]
    notices += _withdrawals(view, {each.pod.metadata.uid for each in evictions})
    return Leave(
        notices=[*notices, *_checkpoint_requests(view, pending, in_grace)],
        deletes=[delete_pod(each.pod, each.why) for each in pending if each not in in_grace],
        again=min((at for at in grace_ends.values() if at is not None and at > view.now), default=None),
    )


def delete_pod(pod: Pod, reason: str) -> Delete:
    return Delete(
        resource=PODS,
        key=pod.metadata.key,
        uid=pod.metadata.uid,
        resource_version=pod.metadata.resource_version,
        reason=reason,
    )


def _grace_ends_at(view: Scene, eviction: Doomed) -> dt.datetime | None:
    """Return when the pod's grace ends; None to delete it now. An announced end holds, whatever the job says now."""
    pod = eviction.pod
    if pod.status.phase != "Running" or left_by_itself(pod, main_status(pod, view.framework.main_container)):
        return None
    announced = _announced_end(view, pod)
    if announced is not None:
        return announced
    seconds = seconds_to_save(view.job) if eviction.may_save else 0
    if not seconds:
        return None
    # The annotation has whole seconds. The end is rounded up, so that the program has all the seconds it asked for.
    return view.now.replace(microsecond=0) + dt.timedelta(seconds=seconds + (view.now.microsecond > 0))


def _announced_end(view: Scene, pod: Pod) -> dt.datetime | None:
    """Return the announced end of the grace. One beyond the longest possible grace is not ours and is ignored."""
    at = leaves_at(pod)
    return at if at is not None and at <= view.now + dt.timedelta(seconds=LONGEST_SAVING + 1) else None


def _announcement(view: Scene, eviction: Doomed, ends_at: dt.datetime | None) -> Notice:
    annotations = {CHECKPOINT: timestamp(view.now), LEAVING: timestamp(ends_at or view.now)}
    return _notice(eviction.pod, annotations, otherwise=delete_pod(eviction.pod, eviction.why))


def _withdrawals(view: Scene, evicted_uids: set[str]) -> Iterator[Notice]:
    for member in view.members.values():
        pod = member.pod
        if LEAVING in pod.metadata.annotations and pod.metadata.uid not in evicted_uids and member.fate is Fate.GOES_ON:
            yield _notice(pod, {LEAVING: None, CHECKPOINT: None})


def _checkpoint_requests(view: Scene, pending: Sequence[Doomed], in_grace: Sequence[Doomed]) -> Iterator[Notice]:
    """Ask the chief for a checkpoint when other replicas are evicted: usually the chief writes the checkpoints."""
    chief = view.members.get(view.job.chief) if view.job.chief is not None else None
    if not in_grace or chief is None or not chief.is_active:
        return
    if any(each.pod.metadata.uid == chief.pod.metadata.uid for each in pending):
        return
    latest_request = max(asked_to_save_at(each.pod) or view.now.replace(microsecond=0) for each in in_grace)
    last_request = asked_to_save_at(chief.pod)
    if last_request is None or last_request < latest_request:
        yield _notice(chief.pod, {CHECKPOINT: timestamp(latest_request)})


def _notice(pod: Pod, annotations: Mapping[str, str | None], otherwise: Delete | None = None) -> Notice:
    metadata = pod.metadata
    return Notice(
        pod=metadata.key,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        annotations=annotations,
        otherwise=otherwise,
    )
