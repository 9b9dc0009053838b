"""Gangs as candidates for a size: what is expected of their work, and the steps between their sizes."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass

from tarragon.base.resources import PODS
from tarragon.job.model import Replica, ReplicaType
from tarragon.job.places import node_of
from tarragon.scheduling.api.snapshot import Demand, RunningGang, WaitingGang
from tarragon.scheduling.api.work import SpeedupCurve, WorkEstimate, devices_of, unknown_work
from tarragon.scheduling.state.node_requests import NodeRequest
from tarragon.scheduling.state.request_table import RequestTable
from tarragon.scheduling.state.size_steps import SizeStep, elastic_demand, size_steps

SHORTNESS_EXPONENT = 0.3
"""How much a short rest counts: the weight of a gang is its rest to the power of minus this. Being short counts, but
less than using the devices well (CoDDL, NSDI'21, found the same).
"""
RESIZES_LOST = 4.0
"""What is taken from a gang costs it this resize and one to grow again, and as estimates err, twice as much has to be
gained elsewhere. On Pollux' workloads, a tenth fewer resizes and 1 to 2 % shorter jobs than without.
"""
MAX_LOST = 1.0
"""A gang loses no more than the rest of its work."""
_MAX_ENTRIES = 20_000
"""The size at which a cache is cleared: jobs come and go for months."""


@dataclass(slots=True, kw_only=True, eq=False)
class Candidate:
    """A gang whose size is to be decided. Must not be modified: not frozen, as creating one would take three times as
    long.
    """

    gang: WaitingGang | RunningGang
    demand: Demand
    """The demand whose number of replicas varies."""
    work: WorkEstimate
    steps: Sequence[SizeStep]
    """Gangs with equal demands and curves share one object."""
    weight: float
    held_weight: float
    """The weight of what the gang has already: to take it away costs a resize now, and another one to give it back."""
    size: int
    """The number of replicas of the demand now; 0 if the gang waits."""
    speed: float
    """The speed-up that it has now; 0 if the gang waits."""
    can_preempt: bool
    group: tuple[int, bool, int, float]
    """Equal for gangs of which none has an advantage over another, except for the share of its namespace: the priority
    and whether it may preempt, a hash of the demands and the curve, and the weight. Not the identity of the steps,
    which a cleared cache changes.
    """

    is_stoppable: bool
    """Whether a running gang may be stopped for others of its priority, once it has run for a while."""
    takes_part: bool
    """Whether a waiting gang has sizes to choose from, and needs a replica of the demand to start."""
    request: NodeRequest
    """What a replica of the demand requests."""
    replicas_by_node: Mapping[str, int]
    """The number of replicas of the demand on each node; empty if the gang waits."""
    node_count: int
    """The number of nodes on which the gang holds resources; 0 if it waits. A launcher may hold none."""
    on_unavailable: frozenset[Replica]
    """The replicas on nodes that accept no pods for now: what they hold is of no use to others."""
    uncounted: Mapping[ReplicaType, int]
    """By type, how many more replicas hold something that others could use than the steps count; may be negative."""
    lacks_others: bool
    """Whether a running gang has fewer replicas of the other demands than it requests."""


class CandidateTable:
    """The candidates of the last cycle on one layout of nodes: few gangs change between cycles."""

    def __init__(self) -> None:
        self._candidates: dict[str, Candidate] = {}
        self._steps: dict[Hashable, Sequence[SizeStep]] = {}

    def of(self, gang: WaitingGang | RunningGang, requests: RequestTable) -> Candidate:
        """Return the candidate for a gang. A gang that has changed is another object."""
        candidate = self._candidates.get(gang.name)
        if candidate is not None and candidate.gang is gang:
            return candidate
        updated = None if candidate is None else _with_other_work(candidate, gang)
        if updated is None:
            if len(self._candidates) >= _MAX_ENTRIES:
                self._candidates.clear()
            updated = self._create(gang, requests)
        self._candidates[gang.name] = updated
        return updated

    def _create(self, gang: WaitingGang | RunningGang, requests: RequestTable) -> Candidate:
        demand = elastic_demand(gang.demands)
        work = gang.work or unknown_work(max(1, demand.requested), devices_of(demand.resources))
        key = tuple(each.shape_key for each in gang.demands), work.curve
        steps = self._steps_of(key, gang.demands, requests)
        weight, can_preempt = _weight(work), _can_preempt(gang)
        there, node_count, on_unavailable = Counter[str](), 0, frozenset[Replica]()
        uncounted: Mapping[ReplicaType, int] = {}
        lacks_others = False
        if isinstance(gang, RunningGang):
            there = Counter(node_of(place) for replica, place in gang.nodes.items() if replica.type == demand.type)
            types = {each.type for each in gang.demands if any(name != PODS for name in each.resources)}
            node_count = len({node_of(place) for replica, place in gang.nodes.items() if replica.type in types})
            on_unavailable = frozenset(replica for replica, place in gang.nodes.items() if place not in requests.places)
            uncounted = _uncounted(gang, demand, on_unavailable)
            counts = Counter(replica.type for replica in gang.nodes)
            lacks_others = any(each is not demand and counts[each.type] < each.requested for each in gang.demands)
        size = there.total()
        speed = work.curve.at(size) if size else 0.0
        return Candidate(
            gang=gang,
            demand=demand,
            work=work,
            steps=steps,
            weight=weight,
            held_weight=_held_weight(weight, work, speed),
            size=size,
            speed=speed,
            can_preempt=can_preempt,
            group=(gang.priority, can_preempt, hash(key), weight),
            is_stoppable=_is_stoppable(demand, size),
            takes_part=demand.minimum > 0 and bool(steps),
            request=requests.of(demand),
            replicas_by_node=there,
            node_count=node_count,
            on_unavailable=on_unavailable,
            uncounted=uncounted,
            lacks_others=lacks_others,
        )

    def _steps_of(
        self,
        key: tuple[Hashable, SpeedupCurve],
        demands: Sequence[Demand],
        requests: RequestTable,
    ) -> Sequence[SizeStep]:
        steps = self._steps.get(key)
        if steps is None:
            if len(self._steps) >= _MAX_ENTRIES:
                self._steps.clear()
                self._candidates.clear()
            steps = self._steps[key] = size_steps(demands, key[1], requests)
        return steps


def seniority(candidate: Candidate) -> tuple[int, dt.datetime | None, str]:
    """Return the sort key of the queue, as `WaitingGang.sort_key`."""
    return -candidate.gang.priority, candidate.gang.queued_at, candidate.gang.name


def _with_other_work(candidate: Candidate, gang: WaitingGang | RunningGang) -> Candidate | None:
    """Return the candidate for a gang of which only the rest of the work is another one; None if more is."""
    before, work = candidate.gang, gang.work
    if work is None or work.curve is not candidate.work.curve or before.demands is not gang.demands:
        return None
    if before.priority != gang.priority or _nodes_of(before) is not _nodes_of(gang):
        return None
    weight = _weight(work)
    can_preempt = _can_preempt(gang)
    group = (gang.priority, can_preempt, candidate.group[2], weight)
    # What `dataclasses.replace` does, in a third of the time: many gangs that run have another rest in each cycle.
    return Candidate(
        gang=gang,
        demand=candidate.demand,
        work=work,
        steps=candidate.steps,
        weight=weight,
        held_weight=_held_weight(weight, work, candidate.speed),
        size=candidate.size,
        speed=candidate.speed,
        can_preempt=can_preempt,
        group=group,
        is_stoppable=candidate.is_stoppable,
        takes_part=candidate.takes_part,
        request=candidate.request,
        replicas_by_node=candidate.replicas_by_node,
        node_count=candidate.node_count,
        on_unavailable=candidate.on_unavailable,
        uncounted=candidate.uncounted,
        lacks_others=candidate.lacks_others,
    )


def _uncounted(gang: RunningGang, varied: Demand, on_unavailable: Collection[Replica]) -> Mapping[ReplicaType, int]:
    """The steps count all replicas of the demand that varies, and the minimum of the others."""
    difference = Counter(replica.type for replica in gang.nodes if replica not in on_unavailable)
    difference.subtract(replica.type for replica in gang.nodes if replica.type == varied.type)
    difference.subtract({demand.type: demand.minimum for demand in gang.demands if demand is not varied})
    return {kind: count for kind, count in difference.items() if count}


def _is_stoppable(demand: Demand, size: int) -> bool:
    """Neither rigid gangs nor those without a minimum are stopped. One that resizes by a restart may grow on request,
    and is rigid all the same. One whose minimum was raised is not stopped because there is too little for that.
    """
    return 0 < demand.minimum <= size and demand.minimum < demand.upper_limit


def _can_preempt(gang: WaitingGang | RunningGang) -> bool:
    return not isinstance(gang, WaitingGang) or gang.can_preempt


def _nodes_of(gang: WaitingGang | RunningGang) -> Mapping[Replica, str] | None:
    return gang.nodes if isinstance(gang, RunningGang) else None


def _weight(work: WorkEstimate) -> float:
    return float(max(work.remaining, 1.0) ** -SHORTNESS_EXPONENT)


def _held_weight(weight: float, work: WorkEstimate, speed: float) -> float:
    """Return the weight, raised by the part of the rest of its run time that a gang would lose.

    A program that begins to report late claims that its restarts are long: that raises the weight to twice at most.
    """
    lost = RESIZES_LOST * work.restart_seconds * speed / max(work.remaining, 1.0)
    return weight * (1 + min(lost, MAX_LOST))
