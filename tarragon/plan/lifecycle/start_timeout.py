"""When a gang that can't be made whole gives its places back: half a gang is the waste that gangs exist to prevent."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from tarragon.base.times import later
from tarragon.job.model import Replica, ReplicaType
from tarragon.job.status import Admission, Obstacle, RestartRecord, Retry, Wait
from tarragon.plan.lifecycle.displacement import is_refused

MOVED_TOO_OFTEN = "MovedTooOften"
"""A gang was sent back by one node after the other."""
MOST_MOVES = 5
MOVES_SECONDS = 600.0

LONGEST_PAUSE = 600.0
"""Seconds. Whoever raises a quota does not wait longer than this for the job to notice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """An admitted gang, and which of its replicas are there: made and bound, or done."""

    admission: Admission
    obstacle: Obstacle | None
    least: Mapping[ReplicaType, int]
    """Without so many of each type, the first of them included, the gang is of no use."""
    there: Collection[Replica]
    runs: bool

    @property
    def is_whole(self) -> bool:
        return all(replica in self.there for replica in self.admission.nodes)


def ends_at(admission: Admission, obstacle: Obstacle | None, patience: float) -> dt.datetime | None:
    """When a gang that meets an obstacle loses what it holds; None while it meets none."""
    if obstacle is None or admission.admitted is None or obstacle.since < admission.admitted:
        return None
    return later(obstacle.since, patience)


def forgotten_at(admission: Admission) -> dt.datetime | None:
    """When a gang that runs smaller for what it met forgets that: there was nothing to try again with, since it might.

    Not before: a try that goes well ends it sooner, and one that does not is to be followed by a longer rest.
    """
    if admission.retry is None or admission.wait is None:
        return None
    return later(admission.retry.after, LONGEST_PAUSE)


def revised(hold: Hold, now: dt.datetime, patience: float) -> Admission:
    """The admission as it is to be; equal to what it is while there is still patience, or no obstacle.

    A gang that has its least goes on, without the replicas beyond those that could be made.
    """
    admission, obstacle = hold.admission, hold.obstacle
    if hold.is_whole:
        if not hold.runs or obstacle is not None or admission.retry is None:
            return admission
        until = forgotten_at(admission)
        return replace(admission, wait=None, retry=None) if until is None or now >= until else admission
    due = ends_at(admission, obstacle, patience)
    if obstacle is None or due is None or now < due:
        return admission
    wait = Wait(code=obstacle.reason, message=obstacle.message)
    retry = _next(admission.retry, now, patience)
    if not _is_enough(hold):
        return Admission(queued=now, wait=wait, retry=retry)
    nodes = _without_missing_tails(hold)
    if len(nodes) == len(admission.nodes):
        return admission
    size = {kind: sum(replica.type is kind for replica in nodes) for kind in admission.size}
    reason = f"{obstacle.reason}: {obstacle.message}"
    return replace(admission, nodes=nodes, size=size, wait=wait, retry=retry, resized=now, reason=reason)


def moved(before: Admission, after: Admission, records: Mapping[Replica, RestartRecord], now: dt.datetime) -> Admission:
    """`after`, with the move on record if a node did not take a replica that it was admitted to.

    Whoever is sent from node to node gives everything back: what we see of these nodes is not what they go by.
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
    words = f"node {record.refused_by} does not take {replica} ({record.reason}), nor did {MOST_MOVES} nodes before it"
    return Admission(queued=now, wait=Wait(code=MOVED_TOO_OFTEN, message=words), retry=_next(before.retry, now, 60.0))


def is_resting(admission: Admission | None, now: dt.datetime) -> bool:
    """Whether its last try is too short a time ago for the next one."""
    return admission is not None and admission.retry is not None and now < admission.retry.after


def _next(before: Retry | None, now: dt.datetime, patience: float) -> Retry:
    """It rests for as long as it held its places in vain, then for twice as long, and so on."""
    count = 1 if before is None else before.count + 1
    pause = min(patience * 2.0 ** min(count - 1, 20), max(LONGEST_PAUSE, patience))
    return Retry(count=count, after=now + dt.timedelta(seconds=pause))


def _is_enough(hold: Hold) -> bool:
    return all(
        number == 0
        or (Replica(kind, 0) in hold.there and sum(replica.type is kind for replica in hold.there) >= number)
        for kind, number in hold.least.items()
    )


def _without_missing_tails(hold: Hold) -> Mapping[Replica, str]:
    """Replicas go from the highest index down, as in every shrink; one that is missing in the middle stays missing."""
    last: dict[ReplicaType, int] = {}
    for replica in hold.admission.nodes:
        if replica in hold.there or replica.index < hold.least.get(replica.type, 0):
            last[replica.type] = max(last.get(replica.type, -1), replica.index)
    return {
        replica: node for replica, node in hold.admission.nodes.items() if replica.index <= last.get(replica.type, -1)
    }
