"""Finds the replicas that are not created yet because others have to be ready first."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from tarragon.job.model import Replica, ReplicaSpec, ReplicaType, TrainingJob
from tarragon.job.status import JobStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmetPrerequisite:
    """Replicas of `waiting` are not created while only some of the replicas of `awaited` are ready."""

    waiting: ReplicaType
    awaited: ReplicaType
    ready: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GangReadiness:
    """An admitted gang, and whether its replicas are ready."""

    job: TrainingJob
    status: JobStatus
    replicas: Collection[Replica]
    is_ready: Callable[[Replica], bool]


def unmet_prerequisites(gang: GangReadiness) -> Iterator[UnmetPrerequisite]:
    """Yield what keeps types of replicas from being created. Replicas that have succeeded are waited for no more."""
    for group in gang.job.replica_specs:
        awaited = _awaited_type(gang, group)
        if awaited is None:
            continue
        replicas = [replica for replica in gang.replicas if replica.type == awaited]
        ready = sum(gang.is_ready(replica) or replica in gang.status.succeeded_replicas for replica in replicas)
        if ready < len(replicas):
            yield UnmetPrerequisite(waiting=group.type, awaited=awaited, ready=ready, total=len(replicas))


def _awaited_type(gang: GangReadiness, group: ReplicaSpec) -> ReplicaType | None:
    if group.starts_after is not None:
        return group.starts_after
    awaited = group.role.restarts_after
    if awaited is None or gang.job.is_elastic_type(awaited):
        return None
    was_restarted = any(
        replica.type == group.type and record.pod_restarts for replica, record in gang.status.restarts.items()
    )
    return awaited if was_restarted else None
