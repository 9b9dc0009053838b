"""Applies a scheduling decision to a job's admission."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from tarragon.frameworks.plugin import GangSize
from tarragon.job.conditions import SUSPENDED
from tarragon.job.model import Replica, ReplicaType
from tarragon.job.status import Admission, WaitReason
from tarragon.operator.informers.candidates import Candidate, min_and_requested
from tarragon.plan.lifecycle.start_timeout import record_move
from tarragon.plan.status.resizes import renumber_from_zero
from tarragon.plan.view.job_view import may_grow
from tarragon.scheduling.api import decision as decisions


def apply_decision(candidate: Candidate, decided: decisions.GangDecision, now: dt.datetime) -> Admission:
    """The admission after the decision; equal to the current admission if nothing changes."""
    before = candidate.admission or Admission(queued_at=queued_since(candidate, now))
    match decided:
        case decisions.Defer(_, code, message, cause):
            return replace(before, wait=WaitReason(code=code, message=message, cause=cause))
        case decisions.Admit(_, nodes):
            size = size_of(nodes)
            after = replace(
                before, admitted_at=now, size=size, nodes=nodes, wait=None, resized_at=None, resize_reason=""
            )
            return replace(after, requested_size=_requested_if_different(size, candidate))
        case decisions.Resize(_, chosen, reason):
            nodes = renumber_from_zero(candidate.job, chosen)
            size = size_of(nodes)
            after = replace(before, size=size, nodes=nodes, wait=None)
            if size == before.size:
                return record_move(before, after, candidate.status.restarts, now)
            return replace(
                after, resized_at=now, resize_reason=reason, requested_size=_requested_if_different(size, candidate)
            )
        case decisions.Evict(_, code, message):
            # The next cycle replaces the wait; `reason` keeps the cause of the eviction until the job runs again.
            wait = WaitReason(code=code, message=message)
            return Admission(
                queued_at=before.queued_at, wait=wait, backoff=before.backoff, resized_at=now, resize_reason=message
            )


def queued_since(candidate: Candidate, now: dt.datetime) -> dt.datetime:
    """When the job entered the queue: its creation, even if no operator ran then, or its last resumption.

    Never earlier than the job's creation, whatever its status says.
    """
    if candidate.admission is not None:
        created = candidate.object.metadata.creation_timestamp
        return candidate.admission.queued_at if created is None else max(candidate.admission.queued_at, created)
    suspension = candidate.status.condition(SUSPENDED)
    if suspension is None:
        return candidate.job.creation_time or now
    # While the condition is still True, the job has just been resumed and the reconciler has not recorded it yet.
    return now if suspension.is_true else suspension.last_transition_time


def kube_scheduler_size(candidate: Candidate) -> Mapping[ReplicaType, int]:
    """The size of a job that kube-scheduler places: as requested, but a running job grows only if it is elastic."""
    _, requested = min_and_requested_sizes(candidate)
    if candidate.admission is None or not candidate.is_admitted or may_grow(candidate.job, candidate.status):
        return requested
    return {kind: min(number, candidate.admission.size.get(kind, 0)) for kind, number in requested.items()}


def min_and_requested_sizes(candidate: Candidate) -> tuple[GangSize, GangSize]:
    """The minimum and the requested number of replicas of each type."""
    sizes = {group.type: min_and_requested(candidate.job, group) for group in candidate.job.replica_specs}
    return {kind: least for kind, (least, _) in sizes.items()}, {kind: wish for kind, (_, wish) in sizes.items()}


def size_of(nodes: Mapping[Replica, str]) -> Mapping[ReplicaType, int]:
    return Counter(replica.type for replica in nodes)


def _requested_if_different(size: GangSize, candidate: Candidate) -> GangSize:
    """The requested size if it differs from `size`, else empty: few of thousands of jobs differ."""
    _, requested = min_and_requested_sizes(candidate)
    requested = {kind: number for kind, number in requested.items() if number}
    return {} if requested == size else requested
