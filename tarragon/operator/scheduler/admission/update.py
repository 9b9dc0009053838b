"""Applies a scheduling decision to a job's admission."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from tarragon.frameworks.plugin import Size
from tarragon.job.conditions import SUSPENDED
from tarragon.job.model import Replica, ReplicaType
from tarragon.job.status import Admission, Wait
from tarragon.operator.informers.candidates import Candidate, least_and_wish
from tarragon.plan.lifecycle.start_timeout import moved
from tarragon.plan.status.sizes import without_gaps
from tarragon.plan.view.job_view import may_grow
from tarragon.scheduling.api import decision as decisions


def admission_after(candidate: Candidate, decided: decisions.AboutGang, now: dt.datetime) -> Admission:
    """The admission after the decision; equal to the current admission if nothing changes."""
    before = candidate.admission or Admission(queued=queued_since(candidate, now))
    match decided:
        case decisions.Wait(_, code, message):
            return replace(before, wait=Wait(code=code, message=message))
        case decisions.Place(_, nodes):
            size = size_of(nodes)
            after = replace(before, admitted=now, size=size, nodes=nodes, wait=None, resized=None, reason="")
            return replace(after, wish=_requested_if_different(size, candidate))
        case decisions.Resize(_, chosen, reason):
            nodes = without_gaps(candidate.job, chosen)
            size = size_of(nodes)
            after = replace(before, size=size, nodes=nodes, wait=None)
            if size == before.size:
                return moved(before, after, candidate.status.restarts, now)
            return replace(after, resized=now, reason=reason, wish=_requested_if_different(size, candidate))
        case decisions.Evict(_, code, message):
            # The next cycle replaces the wait; `reason` keeps the cause of the eviction until the job runs again.
            wait = Wait(code=code, message=message)
            return Admission(queued=before.queued, wait=wait, retry=before.retry, resized=now, reason=message)


def queued_since(candidate: Candidate, now: dt.datetime) -> dt.datetime:
    """When the job entered the queue: its creation, even if no operator ran then, or its last resumption.

    Never earlier than the job's creation, whatever its status says.
    """
    if candidate.admission is not None:
        created = candidate.object.metadata.creation_timestamp
        return candidate.admission.queued if created is None else max(candidate.admission.queued, created)
    suspension = candidate.status.condition(SUSPENDED)
    if suspension is None:
        return candidate.job.created or now
    # While the condition is still True, the job has just been resumed and the reconciler has not recorded it yet.
    return now if suspension.is_true else suspension.changed


def size_without_us(candidate: Candidate) -> Mapping[ReplicaType, int]:
    """The size of a job that kube-scheduler places: as requested, but a running job grows only if it is elastic."""
    _, requested = bounds(candidate)
    if candidate.admission is None or not candidate.is_admitted or may_grow(candidate.job, candidate.status):
        return requested
    return {kind: min(number, candidate.admission.size.get(kind, 0)) for kind, number in requested.items()}


def bounds(candidate: Candidate) -> tuple[Size, Size]:
    """The minimum and the requested number of replicas of each type."""
    sizes = {group.type: least_and_wish(candidate.job, group) for group in candidate.job.groups}
    return {kind: least for kind, (least, _) in sizes.items()}, {kind: wish for kind, (_, wish) in sizes.items()}


def size_of(nodes: Mapping[Replica, str]) -> Mapping[ReplicaType, int]:
    return Counter(replica.type for replica in nodes)


def _requested_if_different(size: Size, candidate: Candidate) -> Size:
    """The requested size if it differs from `size`, else empty: few of thousands of jobs differ."""
    _, requested = bounds(candidate)
    requested = {kind: number for kind, number in requested.items() if number}
    return {} if requested == size else requested
