"""Restarts gangs whose replicas can only be recreated together: when one is lost, and when the gang grows.

The new gang round is recorded in the status before any pod of the old round is deleted, and no pod of the new round is
created while one of the old round exists. So old and new replicas never run side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tarragon.frameworks.plugin import Size
from tarragon.job import conditions
from tarragon.job.annotations import (
    BY_RESTART,
    RESIZE,
    is_elastic_by_restart,
    resizes_by_restart,
    restarts_together,
)
from tarragon.job.conditions import Said, with_condition, without_condition
from tarragon.job.indexes import words
from tarragon.job.member import Fate
from tarragon.job.model import Replica
from tarragon.job.phase import Phase, Signal, after
from tarragon.job.status import Gang, JobStatus
from tarragon.kube.core import Pod
from tarragon.plan.objects.generation_label import current, following, is_outdated, round_of
from tarragon.plan.view.job_view import Scene, may_grow
from tarragon.scheduling.api.decision import QUOTA_EXCEEDED

NEEDS_RESTART = "NeedsRestart"
WAITS_FOR_ROOM = "WaitsForRoom"
HAS_FINISHED = "ReplicasFinished"


def bound(view: Scene, status: JobStatus) -> JobStatus:
    """Return the status with the gang's size on record, or with a new round if the gang has to restart."""
    if status.phase.is_final or view.is_refused:
        return status
    if not _tracks_gang(view):
        return _untracked(status)
    before = status.gang or Gang()
    if not view.may_run:
        return replace(status, gang=dissolved(view, before))
    reason = _restart_reason(view, before)
    if reason is not None:
        saves = _size(view) != before.size
        new_gang = Gang(round=following(before, view.own_pods), size=_size(view), saves=saves)
        return _with_restarting_condition(view, replace(status, gang=new_gang), reason)
    is_whole = before.is_whole or not any(_missing_replicas(view))
    return replace(status, gang=replace(before, size=_size(view), is_whole=is_whole))


def dissolved(view: Scene, gang: Gang) -> Gang:
    """Return the record of a gang that may not run any more, so that its remaining pods count as outdated."""
    is_left = any(round_of(member.pod) >= gang.round for member in view.members.values() if is_to_go(member.fate))
    return Gang(round=following(gang, view.own_pods), saves=True) if is_left else replace(gang, size={}, is_whole=False)


def wish_told(view: Scene, status: JobStatus) -> JobStatus:
    """Set or clear the condition that says why a running job has fewer replicas than its spec requests.

    An elastic job that no quota limits gets no such condition: it grows as soon as there is capacity.
    """
    cleared = replace(status, conditions=without_condition(status.conditions, conditions.NOT_GROWN))
    missing_counts = {
        kind: (count, view.size.get(kind, 0))
        for kind, count in view.job.wished().items()
        if count > view.size.get(kind, 0)
    }
    quota_message = _quota_message(view, status)
    grows = view.job.elastic is not None and not quota_message
    if status.phase.is_final or not view.may_run or grows or not missing_counts:
        return cleared
    counts = " and ".join(f"{size} of {requested} {kind.word}" for kind, (requested, size) in missing_counts.items())
    reason, why = (QUOTA_EXCEEDED, quota_message) if quota_message else _why_not_grown(view, status)
    said = Said(conditions.NOT_GROWN, True, reason, f"{counts} replicas are scheduled: {why}")
    return replace(status, conditions=with_condition(status.conditions, said, view.now))


def outdated(view: Scene, status: JobStatus) -> Iterator[Pod]:
    """Yield pods of earlier rounds. Pods of replicas that have finished are kept for their logs."""
    if not current(status):
        return
    succeeded_uids = {member.pod.metadata.uid for member in view.members.values() if member.fate is Fate.DONE}
    yield from (pod for pod in view.own_pods if is_outdated(pod, status) and pod.metadata.uid not in succeeded_uids)


def is_to_go(fate: Fate) -> bool:
    return fate is not Fate.DONE


def _tracks_gang(view: Scene) -> bool:
    job = view.job
    is_scheduled_elsewhere = not view.needs_admission and job.elastic is None
    return restarts_together(job) or resizes_by_restart(job) or is_scheduled_elsewhere


def _untracked(status: JobStatus) -> JobStatus:
    """Forget the gang's size, as its pods are replaced one by one. Tracking starts again with the pods of that time."""
    gang = status.gang
    return status if gang is None else replace(status, gang=Gang(round=gang.round) if gang.round else None)


def _restart_reason(view: Scene, gang: Gang) -> str | None:
    size = _size(view)
    if not gang.size:
        return None
    grows = any(count > gang.size.get(kind, 0) for kind, count in size.items())
    if grows or (size != gang.size and (restarts_together(view.job) or is_elastic_by_restart(view.job))):
        return _resize_message(view)
    if not restarts_together(view.job):
        return None
    lost_replicas = [replica for replica, member in view.members.items() if member.fate is Fate.REPLACED]
    if not lost_replicas and gang.is_whole:
        lost_replicas = list(_missing_replicas(view))
    return f"{words(lost_replicas)} is lost; all replicas restart together" if lost_replicas else None


def _resize_message(view: Scene) -> str:
    counts = ", ".join(f"{count} {kind.word}" for kind, count in _size(view).items())
    return f"all replicas restart at the new size: {counts}"


def _with_restarting_condition(view: Scene, status: JobStatus, reason: str) -> JobStatus:
    """Set the Restarting condition. If the framework's verdict has just set it, its message is better and is kept."""
    if status.phase is Phase.RESTARTING and view.before.phase is not Phase.RESTARTING:
        return status
    phase = after(status.phase, Signal.LOST)
    said = Said(phase.value, True, view.dialect.condition_reason(phase.value), reason)
    return replace(status, phase=phase, conditions=with_condition(status.conditions, said, view.now))


def _missing_replicas(view: Scene) -> Iterator[Replica]:
    for replica in view.replicas:
        if replica not in view.members and replica not in view.before.finished:
            yield replica


def _size(view: Scene) -> Size:
    return {kind: count for kind, count in view.size.items() if count}


def _quota_message(view: Scene, status: JobStatus) -> str:
    """Return the scheduler's message about the quota that keeps the job from growing; empty if none does."""
    admission = status.admission if view.needs_admission else None
    if admission is None or admission.admitted is None or admission.wait is None:
        return ""
    return admission.wait.message if admission.wait.code == QUOTA_EXCEEDED else ""


def _why_not_grown(view: Scene, status: JobStatus) -> tuple[str, str]:
    if not resizes_by_restart(view.job):
        remedy = f"set the annotation {RESIZE}: {BY_RESTART} to restart all replicas at the new size"
        return NEEDS_RESTART, f"the running replicas can't use more; {remedy}"
    if not may_grow(view.job, status) and status.finished:
        return HAS_FINISHED, f"{words(status.finished)} has already finished; the job ends at its current size"
    return WAITS_FOR_ROOM, "all replicas restart at the new size when there is capacity for it"
