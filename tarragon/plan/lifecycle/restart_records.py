"""Counts restarts: each end of a pod is counted exactly once and before the pod is deleted, despite crashes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace

from tarragon.base.time_arithmetic import add_seconds
from tarragon.job.annotations import restarts_as_gang
from tarragon.job.eviction_notice import eviction_time
from tarragon.job.model import Replica
from tarragon.job.replica_state import PodOutcome, ReplicaAction, ReplicaState
from tarragon.job.status import JobStatus, RestartRecord
from tarragon.plan.view.job_view import JobView

MAX_RESTART_BACKOFF_SECONDS = 60
"""Seconds: the upper bound of the restart backoff."""


def update_restart_records(view: JobView) -> Mapping[Replica, RestartRecord]:
    """Return the restart records, updated with everything that the pods show and that is not on record yet."""
    changed = {
        replica: record
        for replica, member in _counted_members(view).items()
        for before in [view.recorded_status.restarts.get(replica)]
        for record in [_updated(before or RestartRecord(), member, view.now)]
        if record != (before or RestartRecord())
    }
    return {**view.recorded_status.restarts, **changed} if changed else view.recorded_status.restarts


def _counted_members(view: JobView) -> Mapping[Replica, ReplicaState]:
    """Return the members whose end counts. In a gang that restarts together, only the first that was lost counts."""
    members = view.members
    lost = [replica for replica, member in members.items() if member.action is ReplicaAction.REPLACE]
    if not restarts_as_gang(view.job) or len(lost) < 2:  # noqa: PLR2004 - there is no choice
        return members
    first = min(lost, key=lambda replica: (members[replica].ended_at, replica))
    return {replica: member for replica, member in members.items() if replica == first or replica not in lost}


def forget_deleted_pods(view: JobView, status: JobStatus) -> JobStatus:
    """Return the status without the UIDs of deleted pods: these can't be counted a second time.

    Of a finished job they are kept where no other pod has followed: that end was not followed by a restart either.
    """
    uids = {pod.metadata.uid for pod in view.own_pods}
    records = {
        replica: record
        if record.pod_uid in uids or (status.phase.is_final and replica not in view.members)
        else replace(record, pod_uid="", container_restarts_of_pod=0, is_pod_end_counted=False)
        for replica, record in status.restarts.items()
    }
    return replace(status, restarts=records)


def is_end_recorded(record: RestartRecord | None, member: ReplicaState) -> bool:
    """Whether the end of this pod is already counted."""
    return record is not None and record.is_pod_end_counted and record.pod_uid == member.pod.metadata.uid


def backoff_ends_at(record: RestartRecord | None) -> dt.datetime | None:
    """Return when the replica may start again: exponential backoff, but none after its first restart.

    A pod that its node rejected does back off the first time: the scheduler looks for another node first. As records
    have whole seconds, it gets a second more: without it, a record of 0.99 s would leave the scheduler 10 ms.
    """
    if record is None or record.ended_at is None or (record.pod_restarts <= 1 and not record.rejected_by_node):
        return None
    ends = record.rejections or record.pod_restarts
    seconds = min(2 ** min(max(ends - 2, 0), 10), MAX_RESTART_BACKOFF_SECONDS)
    return add_seconds(record.ended_at, seconds + 1 if record.rejected_by_node else seconds)


def _updated(record: RestartRecord, member: ReplicaState, now: dt.datetime) -> RestartRecord:
    if eviction_time(member.pod) is not None:
        return record
    record = _with_in_place_restarts(record, member, now)
    if member.action is not ReplicaAction.REPLACE or _was_deleted(member) or is_end_recorded(record, member):
        return record
    return _with_end(record, member, now)


def _with_in_place_restarts(record: RestartRecord, member: ReplicaState, now: dt.datetime) -> RestartRecord:
    uid = member.pod.metadata.uid
    is_same_pod = record.pod_uid == uid
    seen_before = record.container_restarts_of_pod if is_same_pod else 0
    restarts = member.container_restarts
    if restarts <= seen_before:
        return record
    failure = member.last_failure
    return replace(
        record,
        container_restarts=record.container_restarts + restarts - seen_before,
        pod_uid=uid,
        container_restarts_of_pod=restarts,
        is_pod_end_counted=record.is_pod_end_counted and is_same_pod,
        exit_code=failure.exit_code if failure is not None else None,
        reason=failure.reason if failure is not None else "",
        ended_at=now,
        finished_at=failure.finished_at if failure is not None else None,
        rejections=0,
        rejected_by_node="",
    )


def _with_end(record: RestartRecord, member: ReplicaState, now: dt.datetime) -> RestartRecord:
    ending = member.termination
    is_rejected = member.is_rejected_by_kubelet
    is_disrupted = not is_rejected and ending is not None and ending.outcome is PodOutcome.DISRUPTED
    return replace(
        record,
        pod_restarts=record.pod_restarts + (not is_rejected),
        disruptions=record.disruptions + is_disrupted,
        pod_uid=member.pod.metadata.uid,
        container_restarts_of_pod=member.container_restarts,
        is_pod_end_counted=True,
        exit_code=ending.exit_code if ending is not None else None,
        reason=ending.reason if ending is not None else "",
        ended_at=now,
        finished_at=ending.finished_at if ending is not None else None,
        rejections=record.rejections + 1 if is_rejected else 0,
        rejected_by_node=member.pod.spec.node_name if is_rejected else "",
    )


def _was_deleted(member: ReplicaState) -> bool:
    """Whether the pod was deleted. Such a pod is replaced, but does not count as a restart of the program."""
    return (
        member.pod.metadata.is_being_deleted
        and member.termination is not None
        and member.termination.outcome is PodOutcome.DISRUPTED
    )
