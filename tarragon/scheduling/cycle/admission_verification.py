"""Checks whether the scheduler could have decided an admission that it does not recognize as its own.

A claim is checked for what must never happen: an oversold node, a namespace above its quota, a size or a replica that
the job does not ask for. Only new assignments are checked. What was accepted before is not checked again, so a lowered
quota or a smaller node takes nothing from running jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tarragon.base.resources import Resources
from tarragon.job.model import Replica, ReplicaType
from tarragon.job.places import describe_place, node_of, vgpu_of
from tarragon.scheduling.api.gpu_shares import claims_of
from tarragon.scheduling.api.snapshot import Demand, RunningGang, Snapshot
from tarragon.scheduling.cycle.shares import QueueUsage
from tarragon.scheduling.explain import wait_messages
from tarragon.scheduling.state.ledger import NodeLedger


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionClaim:
    """The assignments of a gang by an admission that is to be verified."""

    gang: RunningGang
    """The gang as it would run by this admission."""
    size: Mapping[ReplicaType, int]
    accepted: Mapping[Replica, str]
    """The assignments that were accepted before."""
    had_pods: bool = False
    """Whether the gang has had pods. A node that is gone or unavailable then is one that it has lost."""

    @property
    def added(self) -> Mapping[Replica, str]:
        """The new assignments, without finished replicas: these hold nothing."""
        nodes, finished = self.gang.nodes, self.gang.finished
        return {
            replica: node
            for replica, node in nodes.items()
            if self.accepted.get(replica) != node and replica not in finished
        }


class AdmissionVerifier:
    """Verifies the claims of one snapshot, in which none of them counts yet. An accepted claim takes its resources."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._ledger = NodeLedger.of_free(snapshot.nodes)
        self._shares = QueueUsage(snapshot)
        self._unavailable = {node.name: node.unavailable_reason for node in snapshot.unavailable_nodes}

    def rejection(self, claim: AdmissionClaim) -> str | None:
        """Return why the scheduler could not have decided this; None if it could, and the claim then takes its
        resources.
        """
        return next(self._faults(claim), None)

    def _faults(self, claim: AdmissionClaim) -> Iterator[str]:
        """Yield the faults of a claim; after none, its resources are taken."""
        yield from spec_violations(claim)
        yield from self._over_quota(claim)
        yield from self._over_capacity(claim)
        added = claim.added.keys() - claim.accepted.keys()
        self._shares.charge(claim.gang, added)

    def _over_quota(self, claim: AdmissionClaim) -> Iterator[str]:
        queue = claim.gang.queue
        quota = self._shares.quota(queue)
        demands = _demands(claim)
        added = [(replica, demands[replica.type]) for replica in claim.added if replica not in claim.accepted]
        if quota and len(self._shares.within_quota(queue, added)) < len(added):
            held = self._shares.held(queue)
            limits = wait_messages.format_resources(quota, _exceeded(quota, held, added))
            yield f"{queue} would hold more than its quota of {limits}"

    def _over_capacity(self, claim: AdmissionClaim) -> Iterator[str]:
        """Take all assignments from the ledger, or none if one of them is not possible."""
        demands = _demands(claim)
        taken: dict[Replica, str] = {}
        for replica, place in sorted(claim.added.items(), key=lambda item: -claims_of(demands[item[0].type].share)):
            demand = demands[replica.type]
            unusable = self._unusable(replica, place, demand)
            if unusable and claim.had_pods:
                continue
            amounts = self._ledger.nodes.amounts_at(place, demand)
            fault = unusable or self._shortage(replica, place, demand, amounts)
            if fault:
                self._ledger.release_all(taken, claim.gang.demands)
                yield fault
                return
            self._ledger.take(place, amounts)
            taken[replica] = place

    def _shortage(self, replica: Replica, place: str, demand: Demand, amounts: Resources) -> str:
        if not self._ledger.fits(place, amounts):
            return f"node {node_of(place)} has no room for {replica}"
        is_permitted = demand.share is None or self._ledger.permits(place, demand.share)
        return "" if is_permitted else f"{replica} may not share {describe_place(place)} with its pods"

    def _unusable(self, replica: Replica, place: str, demand: Demand) -> str:
        node = node_of(place)
        if not node:
            return f"{replica} has no node"
        if (vgpu_of(place) is None) != (demand.share is None):
            return f"{replica} has no vGPU" if demand.share is not None else f"{replica} needs no vGPU"
        if node in self._unavailable:
            return f"node {node} {self._unavailable[node]}"
        if node not in self._ledger.nodes.row_of:
            return f"there is no node {node}"
        if place not in self._ledger.nodes.row_of:
            return f"node {node} has no vGPU {vgpu_of(place)}"
        return "" if node in demand.eligible_nodes else f"{replica} may not run on node {node}"


def spec_violations(claim: AdmissionClaim) -> Iterator[str]:
    """Yield what the job does not ask for. A size that was out of bounds may stay so, but not move further out."""
    demands = _demands(claim)
    placed = Counter(replica.type for replica in claim.gang.nodes)
    before = Counter(replica.type for replica in claim.accepted)
    for replica_type in sorted({*claim.size, *placed, *demands}):
        least, most = _bounds(demands.get(replica_type), before[replica_type] if claim.accepted else None)
        size = claim.size.get(replica_type, 0)
        if size < least or max(size, placed[replica_type]) > most:
            yield f"{max(size, placed[replica_type])} {replica_type.lower()}s are not between {least} and {most}"
    if sum(claim.size.values()) > len(claim.gang.nodes) and not claim.had_pods:
        yield "not every replica has a node"
    for replica in claim.added:
        if replica.type not in demands or replica.index >= demands[replica.type].upper_limit:
            yield f"the job has no {replica}"


def _bounds(demand: Demand | None, before: int | None) -> tuple[int, int]:
    """The bounds of the size; `before` is None for a gang that has no assignments yet."""
    least, most = (0, 0) if demand is None else (demand.minimum, demand.upper_limit)
    return (least, most) if before is None else (min(least, before), max(most, before))


def _demands(claim: AdmissionClaim) -> Mapping[ReplicaType, Demand]:
    return {demand.type: demand for demand in claim.gang.demands}


def _exceeded(quota: Resources, held: Resources, added: list[tuple[Replica, Demand]]) -> Resources:
    """Return the limits of the quota that these replicas would exceed."""
    requested: Counter[str] = Counter()
    for _, demand in added:
        requested.update(demand.resources)
    return {name: limit for name, limit in quota.items() if requested[name] > max(0, limit - held.get(name, 0))}
