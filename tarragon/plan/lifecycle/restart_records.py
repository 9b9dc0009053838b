"""Counts restarts: each end of a pod is counted exactly once and before the pod is deleted, despite crashes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace

from tarragon.base.times import later
from tarragon.job.annotations import restarts_together
from tarragon.job.leaving import leaves_at
from tarragon.job.member import End, Fate, Member, is_refusal
from tarragon.job.model import Replica
from tarragon.job.status import JobStatus, RestartRecord
from tarragon.plan.view.job_view import Scene

LONGEST_PAUSE = 60
"""Seconds: the upper bound of the restart backoff."""


def recorded(view: Scene) -> Mapping[Replica, RestartRecord]:
    """Return the restart records, updated with everything that the pods show and that is not on record yet."""
    changed = {
        replica: record
        for replica, member in _counted_members(view).items()
        for before in [view.before.restarts.get(replica)]
        for record in [_updated(before or RestartRecord(), member, view.now)]
        if record != (before or RestartRecord())
    }
    return {**view.before.restarts, **changed} if changed else view.before.restarts


def _counted_members(view: Scene) -> Mapping[Replica, Member]:
    """Return the members whose end counts. In a gang that restarts together, only the first that was lost counts."""
    members = view.members
    lost = [replica for replica, member in members.items() if member.fate is Fate.REPLACED]
    if not restarts_together(view.job) or len(lost) < 2:  # noqa: PLR2004 - there is no choice
        return members
    first = min(lost, key=lambda replica: (members[replica].fell_at, replica))
    return {replica: member for replica, member in members.items() if replica == first or replica not in lost}


def settled(view: Scene, status: JobStatus) -> JobStatus:
    """Return the status without the UIDs of deleted pods: these can't be counted a second time."""
    uids = {pod.metadata.uid for pod in view.own_pods}
    records = {
        replica: record if record.uid in uids else replace(record, uid="", in_place_of_uid=0, has_ended=False)
        for replica, record in status.restarts.items()
    }
    return replace(status, restarts=records)


def is_recorded(record: RestartRecord | None, member: Member) -> bool:
    """Whether the end of this pod is already counted."""
    return record is not None and record.has_ended and record.uid == member.pod.metadata.uid


def may_start_at(record: RestartRecord | None) -> dt.datetime | None:
    """Return when the replica may start again: exponential backoff, but none after its first restart.

    A pod that its node rejected does back off the first time: the scheduler looks for another node first.
    """
    if record is None or record.at is None or (record.count <= 1 and not record.refused_by):
        return None
    return later(record.at, min(2 ** min(max(record.count - 2, 0), 10), LONGEST_PAUSE))


def _updated(record: RestartRecord, member: Member, now: dt.datetime) -> RestartRecord:
    if leaves_at(member.pod) is not None:
        return record
    record = _with_in_place_restarts(record, member, now)
    if member.fate is not Fate.REPLACED or _was_deleted(member) or is_recorded(record, member):
        return record
    return _with_end(record, member, now)


def _with_in_place_restarts(record: RestartRecord, member: Member, now: dt.datetime) -> RestartRecord:
    uid = member.pod.metadata.uid
    is_same_pod = record.uid == uid
    seen_before = record.in_place_of_uid if is_same_pod else 0
    restarts = member.restarts_in_place
    if restarts <= seen_before:
        return record
    failure = member.last_failure
    return replace(
        record,
        in_place=record.in_place + restarts - seen_before,
        uid=uid,
        in_place_of_uid=restarts,
        has_ended=record.has_ended and is_same_pod,
        exit_code=failure.exit_code if failure is not None else None,
        reason=failure.reason if failure is not None else "",
        at=now,
        refused_by="",
    )


def _with_end(record: RestartRecord, member: Member, now: dt.datetime) -> RestartRecord:
    ending = member.ending
    return replace(
        record,
        count=record.count + 1,
        disruptions=record.disruptions + (ending is not None and ending.end is End.DISRUPTED),
        uid=member.pod.metadata.uid,
        in_place_of_uid=member.restarts_in_place,
        has_ended=True,
        exit_code=ending.exit_code if ending is not None else None,
        reason=ending.reason if ending is not None else "",
        at=now,
        refused_by=member.pod.spec.node_name if ending is not None and is_refusal(ending.reason) else "",
    )


def _was_deleted(member: Member) -> bool:
    """Whether the pod was deleted. Such a pod is replaced, but does not count as a restart of the program."""
    return member.pod.metadata.is_ending and member.ending is not None and member.ending.end is End.DISRUPTED
