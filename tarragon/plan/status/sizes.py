"""Reports that a running job was resized, and why, and that a job was evicted.

The reported size is on record, so that each change is reported once, also across restarts of the operator.
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
AS_WISHED = "as requested"


def resized(view: Scene, status: JobStatus) -> JobStatus:
    if not view.may_run:
        return _evicted(view, status)
    size = {kind: count for kind, count in view.size.items() if count}
    status = replace(status, conditions=without_condition(status.conditions, conditions.EVICTED))
    if not status.size or size == status.size:
        return replace(status, size=size)
    reason = SCALED_UP if sum(size.values()) > sum(status.size.values()) else SCALED_DOWN
    said = Said(conditions.RESIZED, True, reason, f"{', '.join(_changes(status.size, size))}: {_why(view)}")
    return replace(status, size=size, conditions=with_condition(status.conditions, said, view.now))


def without_gaps(job: TrainingJob, nodes: Mapping[Replica, str]) -> Mapping[Replica, str]:
    """Return the nodes with replicas renumbered from 0, for jobs that resize by restarting all replicas.

    Their ranks must be contiguous, and all of them are restarted anyway. Other jobs keep their indexes.
    """
    if not is_elastic_by_restart(job):
        return nodes
    used: Counter[ReplicaType] = Counter()
    renumbered: dict[Replica, str] = {}
    for replica in sorted(nodes):
        renumbered[Replica(replica.type, used[replica.type])] = nodes[replica]
        used[replica.type] += 1
    return renumbered


def unsized(status: JobStatus) -> JobStatus:
    """Return the status of a job that is not admitted, without size: the next admission is no resize."""
    retained = without_condition(status.conditions, conditions.RESIZED)
    return replace(status, size={}, conditions=without_condition(retained, conditions.EVICTED))


def _evicted(view: Scene, status: JobStatus) -> JobStatus:
    admission = status.admission
    recorded = status.condition(conditions.EVICTED)
    status = unsized(status)
    if admission is None or admission.resized is None:
        return status
    said = Said(conditions.EVICTED, True, PREEMPTED, admission.reason)
    retained = status.conditions if recorded is None else (*status.conditions, recorded)
    return replace(status, conditions=with_condition(retained, said, view.now))


def _changes(before: Size, after: Size) -> Iterator[str]:
    """`3 -> 2 workers`."""
    for kind in sorted({*before, *after}, key=lambda kind: kind.value):
        old, new = before.get(kind, 0), after.get(kind, 0)
        if old != new:
            yield f"{old} -> {new} {kind.word}s"


def _why(view: Scene) -> str:
    """Return the scheduler's reason if the scheduler resized the job."""
    admission = view.before.admission
    is_by_scheduler = view.needs_admission and admission is not None and admission.resized is not None
    return (admission.reason if is_by_scheduler and admission is not None else "") or AS_WISHED
