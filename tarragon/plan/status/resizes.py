"""Reports that a running job was resized, and why, and that a job was evicted.

The reported size is on record, so that each change is reported once, also across restarts of the operator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tarragon.frameworks.plugin import GangSize
from tarragon.job import conditions
from tarragon.job.annotations import is_elastic_by_restart
from tarragon.job.conditions import ConditionUpdate, remove_condition, set_condition
from tarragon.job.model import Replica, ReplicaType, TrainingJob
from tarragon.job.status import JobStatus
from tarragon.plan.view.job_view import JobView
from tarragon.scheduling.api.decision import PREEMPTED, ResizeReason

SCALED_UP = "ScaledUp"
SCALED_DOWN = "ScaledDown"


def set_resized(view: JobView, status: JobStatus) -> JobStatus:
    if not view.may_run:
        return _evicted(view, status)
    size = {kind: count for kind, count in view.size.items() if count}
    status = replace(status, conditions=remove_condition(status.conditions, conditions.EVICTED))
    if not status.reported_size or size == status.reported_size:
        return replace(status, reported_size=size)
    reason = SCALED_UP if sum(size.values()) > sum(status.reported_size.values()) else SCALED_DOWN
    said = ConditionUpdate(
        conditions.RESIZED, True, reason, f"{', '.join(_changes(status.reported_size, size))}: {_why(view)}"
    )
    return replace(status, reported_size=size, conditions=set_condition(status.conditions, said, view.now))


def renumber_from_zero(job: TrainingJob, nodes: Mapping[Replica, str]) -> Mapping[Replica, str]:
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


def clear_size(status: JobStatus) -> JobStatus:
    """Return the status of a job that is not admitted, without size: the next admission is no resize."""
    retained = remove_condition(status.conditions, conditions.RESIZED)
    return replace(status, reported_size={}, conditions=remove_condition(retained, conditions.EVICTED))


def _evicted(view: JobView, status: JobStatus) -> JobStatus:
    admission = status.admission
    recorded = status.condition(conditions.EVICTED)
    status = clear_size(status)
    if admission is None or admission.resized_at is None:
        return status
    said = ConditionUpdate(conditions.EVICTED, True, PREEMPTED, admission.resize_reason)
    retained = status.conditions if recorded is None else (*status.conditions, recorded)
    return replace(status, conditions=set_condition(retained, said, view.now))


def _changes(before: GangSize, after: GangSize) -> Iterator[str]:
    """`3 -> 2 workers`."""
    for kind in sorted({*before, *after}):
        old, new = before.get(kind, 0), after.get(kind, 0)
        if old != new:
            yield f"{old} -> {new} {kind.lower()}s"


def _why(view: JobView) -> str:
    """Return the scheduler's reason if the scheduler resized the job."""
    admission = view.recorded_status.admission
    is_by_scheduler = view.needs_admission and admission is not None and admission.resized_at is not None
    return (admission.resize_reason if is_by_scheduler and admission is not None else "") or ResizeReason.REQUESTED
