"""Restarts gangs whose replicas can only be recreated together: when one is lost, and when the gang grows.

The new gang round is recorded in the status before any pod of the old round is deleted, and no pod of the new round is
created while one of the old round exists. So old and new replicas never run side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tarragon.frameworks.plugin import GangSize
from tarragon.job import conditions
from tarragon.job.annotations import (
    BY_RESTART,
    RESIZE_ANNOTATION,
    is_elastic_by_restart,
    resizes_by_restart,
    restarts_as_gang,
)
from tarragon.job.conditions import ConditionUpdate, remove_condition, set_condition
from tarragon.job.model import Replica
from tarragon.job.phase import JobSignal, Phase, next_phase
from tarragon.job.replica_ranges import describe_replicas
from tarragon.job.replica_state import ReplicaAction
from tarragon.job.status import GangRound, JobStatus
from tarragon.kube.core import Pod
from tarragon.plan.objects.gang_round import current_round, is_outdated, next_round, round_of
from tarragon.plan.view.job_view import JobView, may_grow
from tarragon.scheduling.api.decision import QUOTA_EXCEEDED

NEEDS_RESTART = "NeedsRestart"
WAITS_FOR_CAPACITY = "WaitsForRoom"
REPLICAS_FINISHED = "ReplicasFinished"


def track_gang(view: JobView, status: JobStatus) -> JobStatus:
    """Return the status with the gang's size on record, or with a new round if the gang has to restart."""
    if status.phase.is_final or view.is_spec_invalid:
        return status
    if not _tracks_gang(view):
        return _untracked(status)
    before = status.gang_round or GangRound()
    if not view.may_run:
        return replace(status, gang_round=dissolve_gang(view, before))
    reason = _restart_reason(view, before)
    if reason is not None:
        saves = _size(view) != before.size
        new_gang = GangRound(number=next_round(before, view.own_pods), size=_size(view), may_checkpoint=saves)
        return _with_restarting_condition(view, replace(status, gang_round=new_gang), reason)
    is_whole = before.was_complete or not any(_missing_replicas(view))
    return replace(status, gang_round=replace(before, size=_size(view), was_complete=is_whole))


def dissolve_gang(view: JobView, gang: GangRound) -> GangRound:
    """Return the record of a gang that may not run any more, so that its remaining pods count as outdated."""
    is_left = any(
        round_of(member.pod) >= gang.number for member in view.members.values() if is_replaceable(member.action)
    )
    return (
        GangRound(number=next_round(gang, view.own_pods), may_checkpoint=True)
        if is_left
        else replace(gang, size={}, was_complete=False)
    )


def set_not_grown(view: JobView, status: JobStatus) -> JobStatus:
    """Set or clear the condition that says why a running job has fewer replicas than its spec requests.

    An elastic job that no quota limits gets no such condition: it grows as soon as there is capacity.
    """
    cleared = replace(status, conditions=remove_condition(status.conditions, conditions.NOT_GROWN))
    missing_counts = {
        kind: (count, view.size.get(kind, 0))
        for kind, count in view.job.requested_size().items()
        if count > view.size.get(kind, 0)
    }
    quota_message = _quota_message(view, status)
    grows = view.job.elastic_policy is not None and not quota_message
    if status.phase.is_final or not view.may_run or grows or not missing_counts:
        return cleared
    counts = " and ".join(f"{size} of {requested} {kind.lower()}" for kind, (requested, size) in missing_counts.items())
    reason, why = (QUOTA_EXCEEDED, quota_message) if quota_message else _why_not_grown(view, status)
    said = ConditionUpdate(conditions.NOT_GROWN, True, reason, f"{counts} replicas are scheduled: {why}")
    return replace(status, conditions=set_condition(status.conditions, said, view.now))


def outdated_pods(view: JobView, status: JobStatus) -> Iterator[Pod]:
    """Yield pods of earlier rounds. Pods of replicas that have finished are kept for their logs."""
    if not current_round(status):
        return
    succeeded_uids = {
        member.pod.metadata.uid for member in view.members.values() if member.action is ReplicaAction.COMPLETE
    }
    yield from (pod for pod in view.own_pods if is_outdated(pod, status) and pod.metadata.uid not in succeeded_uids)


def is_replaceable(fate: ReplicaAction) -> bool:
    return fate is not ReplicaAction.COMPLETE


def _tracks_gang(view: JobView) -> bool:
    job = view.job
    is_scheduled_elsewhere = not view.needs_admission and job.elastic_policy is None
    return restarts_as_gang(job) or resizes_by_restart(job) or is_scheduled_elsewhere


def _untracked(status: JobStatus) -> JobStatus:
    """Forget the gang's size, as its pods are replaced one by one. Tracking starts again with the pods of that time."""
    gang = status.gang_round
    return (
        status if gang is None else replace(status, gang_round=GangRound(number=gang.number) if gang.number else None)
    )


def _restart_reason(view: JobView, gang: GangRound) -> str | None:
    size = _size(view)
    if not gang.size:
        return None
    grows = any(count > gang.size.get(kind, 0) for kind, count in size.items())
    if grows or (size != gang.size and (restarts_as_gang(view.job) or is_elastic_by_restart(view.job))):
        return _resize_message(view)
    if not restarts_as_gang(view.job):
        return None
    lost_replicas = [replica for replica, member in view.members.items() if member.action is ReplicaAction.REPLACE]
    if not lost_replicas and gang.was_complete:
        lost_replicas = list(_missing_replicas(view))
    return f"{describe_replicas(lost_replicas)} is lost; all replicas restart together" if lost_replicas else None


def _resize_message(view: JobView) -> str:
    counts = ", ".join(f"{count} {kind.lower()}" for kind, count in _size(view).items())
    return f"all replicas restart at the new size: {counts}"


def _with_restarting_condition(view: JobView, status: JobStatus, reason: str) -> JobStatus:
    """Set the Restarting condition. If the framework's verdict has just set it, its message is better and is kept."""
    if status.phase is Phase.RESTARTING and view.recorded_status.phase is not Phase.RESTARTING:
        return status
    phase = next_phase(status.phase, JobSignal.REPLICA_LOST)
    said = ConditionUpdate(phase.value, True, view.dialect.condition_reason(phase.value), reason)
    return replace(status, phase=phase, conditions=set_condition(status.conditions, said, view.now))


def _missing_replicas(view: JobView) -> Iterator[Replica]:
    for replica in view.desired_replicas:
        if replica not in view.members and replica not in view.recorded_status.succeeded_replicas:
            yield replica


def _size(view: JobView) -> GangSize:
    return {kind: count for kind, count in view.size.items() if count}


def _quota_message(view: JobView, status: JobStatus) -> str:
    """Return the scheduler's message about the quota that keeps the job from growing; empty if none does."""
    admission = status.admission if view.needs_admission else None
    if admission is None or admission.admitted_at is None or admission.wait is None:
        return ""
    return admission.wait.message if admission.wait.code == QUOTA_EXCEEDED else ""


def _why_not_grown(view: JobView, status: JobStatus) -> tuple[str, str]:
    if not resizes_by_restart(view.job):
        remedy = f"set the annotation {RESIZE_ANNOTATION}: {BY_RESTART} to restart all replicas at the new size"
        return NEEDS_RESTART, f"the running replicas can't use more; {remedy}"
    if not may_grow(view.job, status) and status.succeeded_replicas:
        return (
            REPLICAS_FINISHED,
            f"{describe_replicas(status.succeeded_replicas)} has already finished; the job ends at its current size",
        )
    return WAITS_FOR_CAPACITY, "all replicas restart at the new size when there is capacity for it"
