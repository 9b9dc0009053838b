"""Releases the resources of an admitted gang that does not start in time: an incomplete gang would waste them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from tarragon.base.times import later
from tarragon.job.model import Replica, ReplicaType
from tarragon.job.status import Admission, Obstacle, RestartRecord, Retry, Wait
from tarragon.plan.lifecycle.displacement import is_refused

MOVED_TOO_OFTEN = "MovedTooOften"
"""The wait code of a gang whose replicas were rejected by one node after another."""
MOST_MOVES = 5
MOVES_SECONDS = 600.0

LONGEST_PAUSE = 600.0
"""Seconds: the upper bound of the pause between two attempts. After a quota is raised, the job notices by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """An admitted gang, and which of its replicas are in place: their pods are created and bound, or have finished."""

    admission: Admission
    obstacle: Obstacle | None
    least: Mapping[ReplicaType, int]
    """The minimum number of replicas of each type, index 0 included, without which the gang can't run."""
    there: Collection[Replica]
    runs: bool

    @property
    def is_whole(self) -> bool:
        return all(replica in self.there for replica in self.admission.nodes)


def ends_at(admission: Admission, obstacle: Obstacle | None, timeout: float) -> dt.datetime | None:
    """Return when a gang that can't start because of an obstacle loses its admission; None without an obstacle."""
    if obstacle is None or admission.admitted is None or obstacle.since < admission.admitted:
        return None
    return later(obstacle.since, timeout)


def forgotten_at(admission: Admission) -> dt.datetime | None:
    """Return when a gang that was shrunk because of an obstacle may grow again although nothing was retried.

    Not earlier, because a successful retry ends the pause anyway, and a failed one must be followed by a longer pause.
    """
    if admission.retry is None or admission.wait is None:
        return None
    return later(admission.retry.after, LONGEST_PAUSE)


def revised(hold: Hold, now: dt.datetime, timeout: float) -> Admission:
    """Return the admission as it should be: unchanged while there is no obstacle or its timeout has not passed.

    After the timeout, a gang that has its minimum size shrinks to the replicas that could be created; any other gang
    loses its admission and is queued again after a pause.
    """
    admission, obstacle = hold.admission, hold.obstacle
    if hold.is_whole:
        if not hold.runs or obstacle is not None or admission.retry is None:
            return admission
        forgotten = forgotten_at(admission)
        return replace(admission, wait=None, retry=None) if forgotten is None or now >= forgotten else admission
    due = ends_at(admission, obstacle, timeout)
    if obstacle is None or due is None or now < due:
        return admission
    wait = Wait(code=obstacle.reason, message=obstacle.message)
    retry = _next_retry(admission.retry, now, timeout)
    if not _has_minimum(hold):
        return Admission(queued=now, wait=wait, retry=retry)
    nodes = _without_missing_replicas(hold)
    if len(nodes) == len(admission.nodes):
        return admission
    size = {kind: sum(replica.type is kind for replica in nodes) for kind in admission.size}
    reason = f"{obstacle.reason}: {obstacle.message}"
    return replace(admission, nodes=nodes, size=size, wait=wait, retry=retry, resized=now, reason=reason)


def moved(before: Admission, after: Admission, records: Mapping[Replica, RestartRecord], now: dt.datetime) -> Admission:
    """Return `after` with the move on record if a node rejected a replica that was assigned to it.

    After MOST_MOVES moves within MOVES_SECONDS the gang loses its admission: nodes reject it for reasons unknown to us.
    """
    refused = [
        (replica, record)
        for replica, node in before.nodes.items()
        for record in [records.get(replica)]
        if record is not None and is_refused(record, node, before) and after.nodes.get(replica, node) != node
    ]
    if not refused:
        return after
    recent = tuple(at for at in before.moves if (now - at).total_seconds() < MOVES_SECONDS)
    if len(recent) < MOST_MOVES:
        return replace(after, moves=(*recent, now))
    replica, record = refused[0]
    message = (
        f"node {record.refused_by} rejected {replica} ({record.reason}); the gang was already moved {MOST_MOVES} times"
    )
    return Admission(
        queued=now, wait=Wait(code=MOVED_TOO_OFTEN, message=message), retry=_next_retry(before.retry, now, 60.0)
    )


def is_resting(admission: Admission | None, now: dt.datetime) -> bool:
    """Whether the gang still pauses before its next attempt."""
    return admission is not None and admission.retry is not None and now < admission.retry.after


def _next_retry(before: Retry | None, now: dt.datetime, timeout: float) -> Retry:
    """Return the next retry: the pause is as long as the timeout at first and doubles with each attempt."""
    attempts = 1 if before is None else before.count + 1
    backoff = min(timeout * 2.0 ** min(attempts - 1, 20), max(LONGEST_PAUSE, timeout))
    return Retry(count=attempts, after=now + dt.timedelta(seconds=backoff))


def _has_minimum(hold: Hold) -> bool:
    return all(
        minimum == 0
        or (Replica(kind, 0) in hold.there and sum(replica.type is kind for replica in hold.there) >= minimum)
        for kind, minimum in hold.least.items()
    )


def _without_missing_replicas(hold: Hold) -> Mapping[Replica, str]:
    """Remove missing replicas from the highest index down, as every shrink does; gaps below the last one stay."""
    last: dict[ReplicaType, int] = {}
    for replica in hold.admission.nodes:
        if replica in hold.there or replica.index < hold.least.get(replica.type, 0):
            last[replica.type] = max(last.get(replica.type, -1), replica.index)
    return {
        replica: node for replica, node in hold.admission.nodes.items() if replica.index <= last.get(replica.type, -1)
    }
