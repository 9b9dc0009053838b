"""Whether the scheduler could have decided an admission that it does not know to be its own.

A claim is held against what nobody may ever see: a node that is oversold, a namespace above its quota, a size or a
replica that the job does not ask for. Only places that are new are looked at. What counted before is never asked
about again, so a quota that is lowered or a node that shrinks takes nothing from anybody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tarragon.base.resources import Resources
from tarragon.job.model import Replica, ReplicaType
from tarragon.scheduling.api.snapshot import Demand, RunningGang, Snapshot
from tarragon.scheduling.cycle.shares import Shares
from tarragon.scheduling.explain import wait_messages
from tarragon.scheduling.state.ledger import Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The places that a gang has by an admission that is to be judged."""

    gang: RunningGang
    """As it would run if the admission counted."""
    size: Mapping[ReplicaType, int]
    known: Mapping[Replica, str]
    """Places that counted before."""
    has_run: bool = False
    """Whether it had pods: then a node that is gone, or takes nobody, is one that it has lost."""

    @property
    def added(self) -> Mapping[Replica, str]:
        """Its new places, without those of replicas that have done their part: these hold nothing."""
        nodes, finished = self.gang.nodes, self.gang.finished
        return {
            replica: node
            for replica, node in nodes.items()
            if self.known.get(replica) != node and replica not in finished
        }


class Claims:
    """Of one snapshot, in which none of them counts yet. What a possible one takes, the next ones can't have."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._ledger = Ledger.of_free(snapshot.nodes)
        self._shares = Shares(snapshot)
        self._away = {node.name: node.away for node in snapshot.away}

    def impossible(self, claim: Claim) -> str | None:
        """Why the scheduler could not have decided this; None where it could, and then the places are taken."""
        return next(self._faults(claim), None)

    def _faults(self, claim: Claim) -> Iterator[str]:
        """The claim's places are taken when the last check has passed."""
        yield from of_another_spec(claim)
        yield from self._beyond_quota(claim)
        yield from self._beyond_nodes(claim)
        more = claim.added.keys() - claim.known.keys()
        self._shares.take(claim.gang, more)

    def _beyond_quota(self, claim: Claim) -> Iterator[str]:
        queue = claim.gang.queue
        quota = self._shares.quota(queue)
        demands = _demands(claim)
        more = [(replica, demands[replica.type]) for replica in claim.added if replica not in claim.known]
        if quota and len(self._shares.permitted(queue, more)) < len(more):
            held = self._shares.held(queue)
            yield f"{queue} would hold more than its quota of {wait_messages.words(quota, _limited(quota, held, more))}"

    def _beyond_nodes(self, claim: Claim) -> Iterator[str]:
        """All places are taken, or with the first fault none."""
        demands = _demands(claim)
        taken: dict[Replica, str] = {}
        for replica, node in claim.added.items():
            demand = demands[replica.type]
            lost = self._takes_nobody(replica, node, demand)
            if lost and claim.has_run:
                continue
            if lost or not self._ledger.fits(node, demand.each):
                self._ledger.undo(taken, {each: demands[each.type].each for each in taken})
                yield lost or f"node {node} has no room for {replica}"
                return
            self._ledger.take(node, demand.each)
            taken[replica] = node

    def _takes_nobody(self, replica: Replica, node: str, demand: Demand) -> str:
        if not node:
            return f"{replica} has no node"
        if node in self._away:
            return f"node {node} {self._away[node]}"
        if node not in self._ledger.nodes.row_of:
            return f"there is no node {node}"
        return "" if node in demand.eligible else f"{replica} may not run on node {node}"


def of_another_spec(claim: Claim) -> Iterator[str]:
    """What the job does not ask for. A size that was out of bounds before may stay so, but not get worse."""
    demands = _demands(claim)
    placed = Counter(replica.type for replica in claim.gang.nodes)
    before = Counter(replica.type for replica in claim.known)
    for kind in sorted({*claim.size, *placed, *demands}):
        least, most = _bounds(demands.get(kind), before[kind] if claim.known else None)
        size = claim.size.get(kind, 0)
        if size < least or max(size, placed[kind]) > most:
            yield f"{max(size, placed[kind])} {kind.word}s are not between {least} and {most}"
    if sum(claim.size.values()) > len(claim.gang.nodes) and not claim.has_run:
        yield "not every replica has a place"
    for replica in claim.added:
        if replica.type not in demands or replica.index >= demands[replica.type].most:
            yield f"the job has no {replica}"


def _bounds(demand: Demand | None, before: int | None) -> tuple[int, int]:
    """`before`: None for a gang that has no place yet."""
    least, most = (0, 0) if demand is None else (demand.minimum, demand.most)
    return (least, most) if before is None else (min(least, before), max(most, before))


def _demands(claim: Claim) -> Mapping[ReplicaType, Demand]:
    return {demand.type: demand for demand in claim.gang.demands}


def _limited(quota: Resources, held: Resources, more: list[tuple[Replica, Demand]]) -> Resources:
    """Of the resources that a quota limits, those that would be exceeded."""
    asked: Counter[str] = Counter()
    for _, demand in more:
        asked.update(demand.each)
    return {name: limit for name, limit in quota.items() if asked[name] > max(0, limit - held.get(name, 0))}
