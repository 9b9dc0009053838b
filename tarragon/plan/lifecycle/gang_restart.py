"""Gangs whose replicas are made anew only together: on the loss of one, and when there are to be more of them.

The round goes on record before a pod of the last one is deleted; none of the next is made while one of the last is
there. So there is no moment at which half of a gang is old and half is new.
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


def bound(scene: Scene, status: JobStatus) -> JobStatus:
    """With the gang on record, or a new round of it."""
    if status.phase.is_final or scene.is_refused:
        return status
    if not _is_bound(scene):
        return _unbound(status)
    before = status.gang or Gang()
    if not scene.may_run:
        return replace(status, gang=dissolved(scene, before))
    why = _why_anew(scene, before)
    if why is not None:
        saves = _size(scene) != before.size
        anew = Gang(round=following(before, scene.own_pods), size=_size(scene), saves=saves)
        return _told(scene, replace(status, gang=anew), why)
    is_whole = before.is_whole or not any(_missing(scene))
    return replace(status, gang=replace(before, size=_size(scene), is_whole=is_whole))


def dissolved(scene: Scene, gang: Gang) -> Gang:
    """Whatever is still there of a gang that may not run any more belongs to none that comes after it."""
    is_left = any(round_of(member.pod) >= gang.round for member in scene.members.values() if is_to_go(member.fate))
    return (
        Gang(round=following(gang, scene.own_pods), saves=True) if is_left else replace(gang, size={}, is_whole=False)
    )


def wish_told(scene: Scene, status: JobStatus) -> JobStatus:
    """Why there are fewer replicas than the user has asked for since; an elastic job gets them when there is room, and
    no quota is in the way.
    """
    kept = replace(status, conditions=without_condition(status.conditions, conditions.NOT_GROWN))
    lacking = {
        kind: (wish, scene.size.get(kind, 0))
        for kind, wish in scene.job.wished().items()
        if wish > scene.size.get(kind, 0)
    }
    held = _held_back(scene, status)
    grows = scene.job.elastic is not None and not held
    if status.phase.is_final or not scene.may_run or grows or not lacking:
        return kept
    numbers = " and ".join(f"{size} of {wish} {kind.word}" for kind, (wish, size) in lacking.items())
    reason, why = (QUOTA_EXCEEDED, held) if held else _why_not_grown(scene, status)
    said = Said(conditions.NOT_GROWN, True, reason, f"{numbers} replicas have places: {why}")
    return replace(status, conditions=with_condition(status.conditions, said, scene.now))


def outdated(scene: Scene, status: JobStatus) -> Iterator[Pod]:
    """Pods of earlier rounds; those of replicas that have finished stay, for their logs."""
    if not current(status):
        return
    done = {member.pod.metadata.uid for member in scene.members.values() if member.fate is Fate.DONE}
    yield from (pod for pod in scene.own_pods if is_outdated(pod, status) and pod.metadata.uid not in done)


def is_to_go(fate: Fate) -> bool:
    return fate is not Fate.DONE


def _is_bound(scene: Scene) -> bool:
    job = scene.job
    left_to_others = not scene.needs_admission and job.elastic is None
    return restarts_together(job) or resizes_by_restart(job) or left_to_others


def _unbound(status: JobStatus) -> JobStatus:
    """Its pods come and go one by one; if it is bound again, it begins with those that are there then."""
    gang = status.gang
    return status if gang is None else replace(status, gang=Gang(round=gang.round) if gang.round else None)


def _why_anew(scene: Scene, gang: Gang) -> str | None:
    size = _size(scene)
    if not gang.size:
        return None
    grows = any(number > gang.size.get(kind, 0) for kind, number in size.items())
    if grows or (size != gang.size and (restarts_together(scene.job) or is_elastic_by_restart(scene.job))):
        return _new_size(scene)
    if not restarts_together(scene.job):
        return None
    lost = [replica for replica, member in scene.members.items() if member.fate is Fate.REPLACED]
    if not lost and gang.is_whole:
        lost = list(_missing(scene))
    return f"{words(lost)} is lost, and all replicas are started again together" if lost else None


def _new_size(scene: Scene) -> str:
    numbers = ", ".join(f"{number} {kind.word}" for kind, number in _size(scene).items())
    return f"all replicas are started again, as there are to be {numbers}"


def _told(scene: Scene, status: JobStatus, why: str) -> JobStatus:
    """Where the verdict was the loss itself, its words are better."""
    if status.phase is Phase.RESTARTING and scene.before.phase is not Phase.RESTARTING:
        return status
    phase = after(status.phase, Signal.LOST)
    said = Said(phase.value, True, scene.dialect.condition_reason(phase.value), why)
    return replace(status, phase=phase, conditions=with_condition(status.conditions, said, scene.now))


def _missing(scene: Scene) -> Iterator[Replica]:
    for replica in scene.replicas:
        if replica not in scene.members and replica not in scene.before.finished:
            yield replica


def _size(scene: Scene) -> Size:
    return {kind: number for kind, number in scene.size.items() if number}


def _held_back(scene: Scene, status: JobStatus) -> str:
    """The words of the scheduler about a quota that keeps it small; empty where none does."""
    admission = status.admission if scene.needs_admission else None
    if admission is None or admission.admitted is None or admission.wait is None:
        return ""
    return admission.wait.message if admission.wait.code == QUOTA_EXCEEDED else ""


def _why_not_grown(scene: Scene, status: JobStatus) -> tuple[str, str]:
    if not resizes_by_restart(scene.job):
        remedy = f"the annotation {RESIZE}: {BY_RESTART} starts all of them again at the new size"
        return NEEDS_RESTART, f"those that run could not use more; {remedy}"
    if not may_grow(scene.job, status) and status.finished:
        return HAS_FINISHED, f"{words(status.finished)} has finished already, and the job ends with those it has"
    return WAITS_FOR_ROOM, "all are started again at the new size when there is room for it"
