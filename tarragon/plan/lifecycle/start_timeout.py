"""Releases the resources of an admitted gang that does not start in time: an incomplete gang would waste them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from tarragon.base.time_arithmetic import add_seconds
from tarragon.job.model import Replica, ReplicaType
from tarragon.job.status import Admission, AdmissionBackoff, Obstacle, RestartRecord, WaitReason
from tarragon.plan.lifecycle.displacement import was_rejected_by_node

MOVED_TOO_OFTEN = "MovedTooOften"
"""The wait code of a gang whose replicas were rejected by one node after another."""
MAX_MOVES = 5
MOVES_WINDOW_SECONDS = 600.0

MAX_ADMISSION_BACKOFF_SECONDS = 600.0
"""Seconds: the upper bound of the pause between two attempts. After a quota is raised, the job notices by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GangStart:
    """An admitted gang, and which of its replicas are in place: their pods are created and bound, or have finished."""

    admission: Admission
    obstacle: Obstacle | None
    minimum: Mapping[ReplicaType, int]
    """The minimum number of replicas of each type, index 0 included, without which the gang can't run."""
    replicas_in_place: Collection[Replica]
    is_running: bool

    @property
    def is_complete(self) -> bool:
        return all(replica in self.replicas_in_place for replica in self.admission.nodes)


def is_current(obstacle: Obstacle, admission: Admission) -> bool:
    """Whether the obstacle was found at the gang's size: not before its admission, nor before a timeout shrank it."""
    if admission.admitted_at is None or obstacle.since < admission.admitted_at:
        return False
    shrunk_at = admission.resized_at if admission.backoff is not None else None
    return shrunk_at is None or obstacle.since >= shrunk_at


def start_timeout_at(admission: Admission, obstacle: Obstacle | None, timeout: float) -> dt.datetime | None:
    """Return when a gang that can't start because of an obstacle loses its admission; None without an obstacle."""
    if obstacle is None or not is_current(obstacle, admission):
        return None
    return add_seconds(obstacle.since, timeout)


def retry_reset_at(admission: Admission) -> dt.datetime | None:
    """Return when a gang that was shrunk because of an obstacle may grow again although nothing was retried.

    Not earlier, because a successful retry ends the pause anyway, and a failed one must be followed by a longer pause.
    """
    if admission.backoff is None or admission.wait is None:
        return None
    return add_seconds(admission.backoff.not_before, MAX_ADMISSION_BACKOFF_SECONDS)


def apply_start_timeout(start: GangStart, now: dt.datetime, timeout: float) -> Admission:
    """Return the admission as it should be: unchanged while there is no obstacle or its timeout has not passed.

    After the timeout, a gang that has its minimum size shrinks to the replicas that could be created; any other gang
    loses its admission and is queued again after a pause.
    """
    admission, obstacle = start.admission, start.obstacle
    if start.is_complete:
        if not start.is_running or obstacle is not None or admission.backoff is None:
            return admission
        forgotten = retry_reset_at(admission)
        return replace(admission, wait=None, backoff=None) if forgotten is None or now >= forgotten else admission
    due = start_timeout_at(admission, obstacle, timeout)
    if obstacle is None or due is None or now < due:
        return admission
    wait = WaitReason(code=obstacle.reason, message=obstacle.message)
    retry = _next_retry(admission.backoff, now, timeout)
    if not _has_minimum(start):
        return Admission(queued_at=now, wait=wait, backoff=retry)
    nodes = _without_missing_replicas(start)
    if len(nodes) == len(admission.nodes):
        return admission
    size = {kind: sum(replica.type == kind for replica in nodes) for kind in admission.size}
    reason = f"{obstacle.reason}: {obstacle.message}"
    return replace(admission, nodes=nodes, size=size, wait=wait, backoff=retry, resized_at=now, resize_reason=reason)


def record_move(
    before: Admission, after: Admission, records: Mapping[Replica, RestartRecord], now: dt.datetime
) -> Admission:
    """Return `after` with the move on record if a node rejected a replica that was assigned to it.

    After MAX_MOVES moves within MOVES_WINDOW_SECONDS the gang loses its admission: nodes reject it for reasons unknown
    to us.
    """
    refused = [
        (replica, record)
        for replica, place in before.nodes.items()
        for record in [records.get(replica)]
        if record is not None
        and was_rejected_by_node(record, place, before)
        and after.nodes.get(replica, place) != place
    ]
    if not refused:
        return after
    recent = tuple(at for at in before.reassigned_at if (now - at).total_seconds() < MOVES_WINDOW_SECONDS)
    if len(recent) < MAX_MOVES:
        return replace(after, reassigned_at=(*recent, now))
    replica, record = refused[0]
    message = (
        f"node {record.rejected_by_node} rejected {replica} ({record.reason}); "
        f"the gang was already moved {MAX_MOVES} times"
    )
    return Admission(
        queued_at=now,
        wait=WaitReason(code=MOVED_TOO_OFTEN, message=message),
        backoff=_next_retry(before.backoff, now, 60.0),
    )


def is_in_backoff(admission: Admission | None, now: dt.datetime) -> bool:
    """Whether the gang still pauses before its next attempt."""
    return admission is not None and admission.backoff is not None and now < admission.backoff.not_before


def _next_retry(before: AdmissionBackoff | None, now: dt.datetime, timeout: float) -> AdmissionBackoff:
    """Return the next retry: the pause is as long as the timeout at first and doubles with each attempt."""
    attempts = 1 if before is None else before.attempts + 1
    backoff = min(timeout * 2.0 ** min(attempts - 1, 20), max(MAX_ADMISSION_BACKOFF_SECONDS, timeout))
    return AdmissionBackoff(attempts=attempts, not_before=now + dt.timedelta(seconds=backoff))


def _has_minimum(start: GangStart) -> bool:
    return all(
        minimum == 0
        or (
            Replica(kind, 0) in start.replicas_in_place
            and sum(replica.type == kind for replica in start.replicas_in_place) >= minimum
        )
        for kind, minimum in start.minimum.items()
    )


def _without_missing_replicas(start: GangStart) -> Mapping[Replica, str]:
    """Remove missing replicas from the highest index down, as every shrink does; gaps below the last one stay."""
    last: dict[ReplicaType, int] = {}
    for replica in start.admission.nodes:
        if replica in start.replicas_in_place or replica.index < start.minimum.get(replica.type, 0):
            last[replica.type] = max(last.get(replica.type, -1), replica.index)
    return {
        replica: node for replica, node in start.admission.nodes.items() if replica.index <= last.get(replica.type, -1)
    }
