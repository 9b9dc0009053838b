"""Places gangs with spread constraints: one replica after the other, each where the constraints allow it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from tarragon.job.model import ReplicaType
from tarragon.scheduling.api.snapshot import Demand, TopologyConstraint
from tarragon.scheduling.placement.node_choice import nearest
from tarragon.scheduling.placement.packing import Packing, can_pack, has_enough_in_total, pack, replica_batches
from tarragon.scheduling.state.ledger import NodeLedger
from tarragon.scheduling.state.node_requests import Amounts
from tarragon.scheduling.state.request_table import RequestTable

_MAX_DOMAINS = 16
"""The number of domains that are tried for a gang which must be in a single one."""


class DomainCounts:
    """The count of each domain of a spread: pods of others, and replicas of the gang that are placed."""

    def __init__(self, spread: TopologyConstraint, requests: RequestTable) -> None:
        self._spread = spread
        self._domain_of, names = requests.domain_numbers(spread.domain_of)
        self._counts = np.array([spread.existing_pods.get(name, 0) for name in names], np.int64)
        self._own_counts = np.zeros(len(names), np.int64)

    def add(self, kind: ReplicaType, row: int) -> None:
        domain = self._domain_of[row]
        if kind in self._spread.counted_types and domain >= 0:
            self._counts[domain] += 1
            self._own_counts[domain] += 1

    def allowed(self, kind: ReplicaType) -> Amounts:
        """How many more replicas the domain of each row may get before other domains get any."""
        spread = self._spread
        is_counted = kind in spread.counted_types
        more = np.full(len(self._counts) + 1, np.iinfo(np.int64).max)
        more[-1] = 0
        for limit in self._limits():
            left = limit - self._counts
            np.minimum(more[:-1], left if is_counted else np.where(left >= 0, more[:-1], 0), out=more[:-1])
        if spread.in_one_domain and self._own_counts.any():
            more[:-1][self._own_counts == 0] = 0
        return more[self._domain_of]

    def _limits(self) -> Iterator[int]:
        if self._spread.max_per_domain is not None:
            yield self._spread.max_per_domain
        if self._spread.max_skew is not None:
            yield self._spread.max_skew + int(self._counts.min(initial=np.iinfo(np.int32).max))


class TopologyPlacer:
    """Places a gang replica by replica. What is placed is taken from the ledger."""

    def __init__(self, demands: Sequence[Demand], ledger: NodeLedger) -> None:
        self._ledger = ledger
        self._counts_of = {
            spread: DomainCounts(spread, ledger.requests)
            for demand in demands
            for spread in demand.topology_constraints
        }
        self._opened: list[int] = []

    def record(self, kind: ReplicaType, row: int) -> None:
        """Record a replica of the gang that is already placed."""
        for counts in self._counts_of.values():
            counts.add(kind, row)
        if row not in self._opened:
            self._opened.append(row)

    def place(self, demand: Demand, wanted: int) -> list[str]:
        """Return a place for each replica; fewer if there is no more room."""
        places: list[str] = []
        request = self._ledger.requests.of(demand)
        while len(places) < wanted and (row := self._next(demand, wanted - len(places))) is not None:
            places += self._ledger.take_replicas(row, request, 1)
            self.record(demand.type, row)
        return places

    def _next(self, demand: Demand, wanted: int) -> int | None:
        room = np.minimum(self._ledger.room(self._ledger.requests.of(demand)), wanted)
        for spread in demand.topology_constraints:
            room = np.minimum(room, self._counts_of[spread].allowed(demand.type))
        opened = next((row for row in self._opened if room[row] > 0), None)
        return self._open_row(demand, room) if opened is None else opened

    def _open_row(self, demand: Demand, room: Amounts) -> int | None:
        """Choose the row that takes most of what is left; of these highest score, nearest, least left over."""
        most = int(room.max(initial=0))
        if most <= 0:
            return None
        rows = np.flatnonzero(room == most)
        if demand.node_scores:
            scores = self._ledger.nodes.preference_scores(demand)
            rows = rows[scores[rows] == scores[rows].max()]
        request = self._ledger.requests.of(demand)
        return self._ledger.tightest(nearest(rows, self._ledger, self._opened), 1, [(request, 1)])[0]


def pack_with_topology(demands: Sequence[Demand], counts: Sequence[int], ledger: NodeLedger) -> Packing | None:
    """Do as `pack`, within spread constraints."""
    if not any(demand.topology_constraints for demand in demands):
        return pack(demands, counts, ledger)
    if not has_enough_in_total(replica_batches(demands, counts, ledger), ledger):
        return None
    together = next(
        (spread for demand in demands for spread in demand.topology_constraints if spread.in_one_domain), None
    )
    if together is None:
        return _placed_one_by_one(demands, counts, ledger)
    for domain in _domains(together, demands, counts, ledger):
        found = pack_with_topology([_within(domain, together, demand) for demand in demands], counts, ledger)
        if found is not None:
            return found
    return None


def can_pack_with_topology(demands: Sequence[Demand], counts: Sequence[int], ledger: NodeLedger) -> bool:
    """Whether `pack_with_topology` would find nodes."""
    if any(demand.topology_constraints for demand in demands):
        return pack_with_topology(demands, counts, ledger) is not None
    return can_pack(demands, counts, ledger)


def _domains(
    constraint: TopologyConstraint, demands: Sequence[Demand], counts: Sequence[int], ledger: NodeLedger
) -> list[str]:
    """The domains with room for each demand with this constraint, the one with the least total room first."""
    domain_of, names = ledger.requests.domain_numbers(constraint.domain_of)
    is_able = np.ones(len(names), np.bool_)
    room = np.zeros(len(names), np.float64)
    for want in replica_batches(demands, counts, ledger):
        if constraint in want.demand.topology_constraints:
            taken = np.minimum(ledger.room(want.request), want.count)
            room_there = np.bincount(domain_of[domain_of >= 0], taken[domain_of >= 0], len(names))
            is_able &= room_there >= want.count
            room += room_there * want.weight
    candidates = [int(domain) for domain in np.argsort(room, kind="stable") if is_able[domain]]
    return [names[domain] for domain in candidates[:_MAX_DOMAINS]]


def _within(domain: str, constraint: TopologyConstraint, demand: Demand) -> Demand:
    """Restrict the demand to this domain, which satisfies the constraint."""
    if constraint not in demand.topology_constraints:
        return demand
    nodes = {name for name, other in constraint.domain_of.items() if other == domain}
    others = tuple(spread for spread in demand.topology_constraints if spread is not constraint)
    return replace(demand, eligible_nodes=demand.eligible_nodes & nodes, topology_constraints=others)


def _placed_one_by_one(demands: Sequence[Demand], counts: Sequence[int], ledger: NodeLedger) -> Packing | None:
    """Place the scarcest demand first; if that fails, in start order."""
    scarcest = [want.position for want in replica_batches(demands, counts, ledger)]
    for order in dict.fromkeys([tuple(scarcest), tuple(sorted(scarcest))]):
        placer = TopologyPlacer(demands, ledger.copy())
        packing: Packing = {}
        for position in order:
            places = placer.place(demands[position], counts[position])
            for place in places:
                packing.setdefault(ledger.nodes.row_of[place], [0] * len(demands))[position] += 1
            if len(places) < counts[position]:
                break
        else:
            return packing
    return None
