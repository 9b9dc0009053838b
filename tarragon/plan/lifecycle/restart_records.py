"""Counting restarts: every end of a pod once, before the pod is deleted, whatever crashes in between."""

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


def recorded(scene: Scene) -> Mapping[Replica, RestartRecord]:
    """The records with everything that the pods show and they did not have."""
    news = {
        replica: record
        for replica, member in _counting(scene).items()
        for before in [scene.before.restarts.get(replica)]
        for record in [_after(before or RestartRecord(), member, scene.now)]
        if record != (before or RestartRecord())
    }
    return {**scene.before.restarts, **news} if news else scene.before.restarts


def _counting(scene: Scene) -> Mapping[Replica, Member]:
    """Of a gang that restarts as one, the first to fall takes the others with it: that is one restart."""
    members = scene.members
    fallen = [replica for replica, member in members.items() if member.fate is Fate.REPLACED]
    if not restarts_together(scene.job) or len(fallen) < 2:  # noqa: PLR2004 - there is no choice
        return members
    first = min(fallen, key=lambda replica: (members[replica].fell_at, replica))
    return {replica: member for replica, member in members.items() if replica == first or replica not in fallen}


def settled(scene: Scene, status: JobStatus) -> JobStatus:
    """Without the uids of pods that are gone: nothing of theirs can be counted again."""
    here = {pod.metadata.uid for pod in scene.own_pods}
    kept = {
        replica: record if record.uid in here else replace(record, uid="", in_place_of_uid=0, has_ended=False)
        for replica, record in status.restarts.items()
    }
    return replace(status, restarts=kept)


def is_recorded(record: RestartRecord | None, member: Member) -> bool:
    """Whether the end of this very pod is in the count."""
    return record is not None and record.has_ended and record.uid == member.pod.metadata.uid


def may_start_at(record: RestartRecord | None) -> dt.datetime | None:
    """A replica that ends again and again is started later and later; the first time it is at once.

    Unless a node did not take it: another one is looked for first.
    """
    if record is None or record.at is None or (record.count <= 1 and not record.refused_by):
        return None
    return later(record.at, min(2 ** min(max(record.count - 2, 0), 10), LONGEST_PAUSE))


def _after(record: RestartRecord, member: Member, now: dt.datetime) -> RestartRecord:
    if leaves_at(member.pod) is not None:
        return record
    record = _with_restarts_in_place(record, member, now)
    if member.fate is not Fate.REPLACED or _was_deleted(member) or is_recorded(record, member):
        return record
    return _with_end(record, member, now)


def _with_restarts_in_place(record: RestartRecord, member: Member, now: dt.datetime) -> RestartRecord:
    uid = member.pod.metadata.uid
    is_same_pod = record.uid == uid
    known = record.in_place_of_uid if is_same_pod else 0
    seen = member.restarts_in_place
    if seen <= known:
        return record
    failure = member.last_failure
    return replace(
        record,
        in_place=record.in_place + seen - known,
        uid=uid,
        in_place_of_uid=seen,
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
    """By whoever: it makes room for a new pod, and is no restart of the program's."""
    return member.pod.metadata.is_ending and member.ending is not None and member.ending.end is End.DISRUPTED
