"""What a decision makes of an admission."""

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
    """What is to stand in the status; equal to what stands there when nothing has changed."""
    before = candidate.admission or Admission(queued=queued_since(candidate, now))
    match decided:
        case decisions.Wait(_, code, message):
            return replace(before, wait=Wait(code=code, message=message))
        case decisions.Place(_, nodes):
            size = size_of(nodes)
            after = replace(before, admitted=now, size=size, nodes=nodes, wait=None, resized=None, reason="")
            return replace(after, wish=_wish_beside(size, candidate))
        case decisions.Resize(_, chosen, reason):
            nodes = without_gaps(candidate.job, chosen)
            size = size_of(nodes)
            after = replace(before, size=size, nodes=nodes, wait=None)
            if size == before.size:
                return moved(before, after, candidate.status.restarts, now)
            return replace(after, resized=now, reason=reason, wish=_wish_beside(size, candidate))
        case decisions.Evict(_, code, message):
            # The wait is told anew by the next round; what it had to go for, the reason keeps until it runs again.
            wait = Wait(code=code, message=message)
            return Admission(queued=before.queued, wait=wait, retry=before.retry, resized=now, reason=message)


def queued_since(candidate: Candidate, now: dt.datetime) -> dt.datetime:
    """Since it was created, even if nobody looked at it for a while; a job that was suspended queues anew.

    No job has queued before it was there, whatever its status says.
    """
    if candidate.admission is not None:
        created = candidate.object.metadata.creation_timestamp
        return candidate.admission.queued if created is None else max(candidate.admission.queued, created)
    suspension = candidate.status.condition(SUSPENDED)
    if suspension is None:
        return candidate.job.created or now
    # While it still says True, the reconciler has not told yet that the job is resumed, which it just was.
    return now if suspension.is_true else suspension.changed


def size_without_us(candidate: Candidate) -> Mapping[ReplicaType, int]:
    """As wished; one that runs grows only if it is elastic."""
    _, wished = bounds(candidate)
    if candidate.admission is None or not candidate.is_admitted or may_grow(candidate.job, candidate.status):
        return wished
    return {kind: min(number, candidate.admission.size.get(kind, 0)) for kind, number in wished.items()}


def bounds(candidate: Candidate) -> tuple[Size, Size]:
    """How many replicas of each type it has at least, and how many it wishes."""
    both = {group.type: least_and_wish(candidate.job, group) for group in candidate.job.groups}
    return {kind: least for kind, (least, _) in both.items()}, {kind: wish for kind, (_, wish) in both.items()}


def size_of(nodes: Mapping[Replica, str]) -> Mapping[ReplicaType, int]:
    return Counter(replica.type for replica in nodes)


def _wish_beside(size: Size, candidate: Candidate) -> Size:
    """Nothing where it is the size: of thousands of jobs few have another one."""
    _, wished = bounds(candidate)
    wished = {kind: number for kind, number in wished.items() if number}
    return {} if wished == size else wished
