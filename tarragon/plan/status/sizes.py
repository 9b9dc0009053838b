"""Telling people that a running job has another size now, and why; and that it has lost all its places.

The size that was told is on record, so each change is told once, by whoever sees it first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tarragon.frameworks.plugin import Size
from tarragon.job import conditions
from tarragon.job.annotations import is_elastic_by_restart
from tarragon.job.conditions import Said, with_condition, without_condition
from tarragon.job.model import Replica, ReplicaType, TrainingJob
from tarragon.job.status import JobStatus
from tarragon.plan.view.job_view import Scene
from tarragon.scheduling.api.decision import PREEMPTED

SCALED_UP = "ScaledUp"
SCALED_DOWN = "ScaledDown"
AS_WISHED = "as wished"


def resized(scene: Scene, status: JobStatus) -> JobStatus:
    if not scene.may_run:
        return _evicted(scene, status)
    size = {kind: number for kind, number in scene.size.items() if number}
    status = replace(status, conditions=without_condition(status.conditions, conditions.EVICTED))
    if not status.size or size == status.size:
        return replace(status, size=size)
    reason = SCALED_UP if sum(size.values()) > sum(status.size.values()) else SCALED_DOWN
    said = Said(conditions.RESIZED, True, reason, f"{', '.join(_changes(status.size, size))}: {_why(scene)}")
    return replace(status, size=size, conditions=with_condition(status.conditions, said, scene.now))


def without_gaps(job: TrainingJob, nodes: Mapping[Replica, str]) -> Mapping[Replica, str]:
    """Of workers that march in step the third can't stay the third when the second is gone: all of them are started
    again anyway, and counted from the first.
    """
    if not is_elastic_by_restart(job):
        return nodes
    seen: Counter[ReplicaType] = Counter()
    numbered: dict[Replica, str] = {}
    for replica in sorted(nodes):
        numbered[Replica(replica.type, seen[replica.type])] = nodes[replica]
        seen[replica.type] += 1
    return numbered


def unsized(status: JobStatus) -> JobStatus:
    """Of a job without places: it begins anew with whatever it gets."""
    kept = without_condition(status.conditions, conditions.RESIZED)
    return replace(status, size={}, conditions=without_condition(kept, conditions.EVICTED))


def _evicted(scene: Scene, status: JobStatus) -> JobStatus:
    admission = status.admission
    told = status.condition(conditions.EVICTED)
    status = unsized(status)
    if admission is None or admission.resized is None:
        return status
    said = Said(conditions.EVICTED, True, PREEMPTED, admission.reason)
    kept = status.conditions if told is None else (*status.conditions, told)
    return replace(status, conditions=with_condition(kept, said, scene.now))


def _changes(before: Size, after: Size) -> Iterator[str]:
    """`3 -> 2 workers`."""
    for kind in sorted({*before, *after}, key=lambda kind: kind.value):
        old, new = before.get(kind, 0), after.get(kind, 0)
        if old != new:
            yield f"{old} -> {new} {kind.word}s"


def _why(scene: Scene) -> str:
    """The scheduler's words, if it is its doing."""
    admission = scene.before.admission
    is_theirs = scene.needs_admission and admission is not None and admission.resized is not None
    return (admission.reason if is_theirs and admission is not None else "") or AS_WISHED
