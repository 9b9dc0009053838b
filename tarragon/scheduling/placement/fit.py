"""Places a gang: on one node if it fits there, otherwise on as few nodes as possible, near its parameter servers.

Of placements on equally many nodes, the one with the highest score (preferred affinity) is chosen; of these one within
the narrowest domain, such as a rack; of these the one that leaves least over, accelerators first; of these the first by
name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from tarragon.job.model import Replica, ReplicaType
from tarragon.job.places import node_of
from tarragon.scheduling.api.snapshot import Demand
from tarragon.scheduling.placement.node_choice import RowShare, choose_rows
from tarragon.scheduling.placement.packing import Packing, take_packing
from tarragon.scheduling.placement.spreading import TopologyPlacer, can_pack_with_topology, pack_with_topology
from tarragon.scheduling.state.ledger import NodeLedger

Assignment = dict[Replica, str]


def assign(demands: Sequence[Demand], ledger: NodeLedger) -> Assignment | None:
    """Place the gang at its requested size, or else as large as possible; None if its minimum does not fit.

    A placement has been taken from the ledger; after None the ledger is unchanged.
    """
    if _lacks(demands, ledger):
        return None
    shape = tuple(demand.shape_key for demand in demands)
    packing = None if shape in ledger.infeasible else _pack_largest(demands, ledger)
    if packing is None:
        ledger.infeasible.add(shape)
        return None
    if not packing:
        return {}
    if not any(demand.share for demand in demands):
        each = np.array([ledger.requests.of(demand).row for demand in demands])
        ledger.take_rows(list(packing), np.array(list(packing.values())) @ each)
        names = ledger.nodes.names
        return _assign_indexes(demands, packing, lambda row, position: [names[row]] * packing[row][position])
    places = take_packing(demands, packing, ledger)
    if places is None:
        return None
    return _assign_indexes(demands, packing, lambda row, position: places.get((row, position), ()))


def is_feasible(demands: Sequence[Demand], ledger: NodeLedger) -> bool:
    """Whether `assign` would find a placement, without taking it. Quick if gangs of the same shape asked before."""
    shape = tuple(demand.shape_key for demand in demands)
    if shape in ledger.infeasible:
        return False
    if shape not in ledger.feasible:
        if _lacks(demands, ledger) or not can_pack_with_topology(
            demands, [demand.minimum for demand in demands], ledger
        ):
            ledger.infeasible.add(shape)
            return False
        ledger.feasible.add(shape)
    return True


def assign_more(
    wanted: Sequence[tuple[Replica, Demand]],
    ledger: NodeLedger,
    near: Mapping[Replica, str],
    anchors: AbstractSet[ReplicaType],
) -> Assignment:
    """Place as many of the additional replicas as there is room for, in order and near the gang's other replicas first,
    above all near those of the types `anchors`.
    """
    groups: dict[ReplicaType, list[tuple[Replica, Demand]]] = {}
    for replica, demand in wanted:
        groups.setdefault(demand.type, []).append((replica, demand))
    placed: Assignment = {}
    for group in groups.values():
        gang = {**near, **placed}
        replicas, demand = [replica for replica, _ in group], group[0][1]
        if demand.topology_constraints:
            places = _take_spread(demand, len(replicas), ledger, gang)
        else:
            places = _take_near(demand, len(replicas), ledger, _own_rows(gang, anchors, ledger))
        placed.update(zip(replicas, places, strict=False))
    return placed


def _lacks(demands: Sequence[Demand], ledger: NodeLedger) -> bool:
    """Whether the capacity index already knows that there is too little."""
    request_of = ledger.requests.of
    for demand in demands:  # noqa: SIM110  # a generator would take as long as the check itself
        if ledger.is_known_to_lack(request_of(demand), demand.minimum):
            return True
    return False


def _pack_largest(demands: Sequence[Demand], ledger: NodeLedger) -> Packing | None:
    """Pack the gang at its requested size, otherwise each demand in turn as large as the others' minimum allows."""
    packing = pack_with_topology(demands, [demand.requested for demand in demands], ledger)
    if packing is not None or all(demand.requested == demand.minimum for demand in demands):
        return packing
    counts = [demand.minimum for demand in demands]
    packing = pack_with_topology(demands, counts, ledger)
    if packing is None:
        return None
    for position, demand in enumerate(demands):
        most = min(demand.requested, int(np.minimum(ledger.room(ledger.requests.of(demand)), demand.requested).sum()))
        fits, too_many, tried = counts[position], most + 1, most
        while too_many - fits > 1:
            counts[position] = tried
            larger = pack_with_topology(demands, counts, ledger)
            if larger is None:
                too_many = tried
            else:
                packing, fits = larger, tried
            tried = (fits + too_many) // 2
        counts[position] = fits
    return packing


def _assign_indexes(
    demands: Sequence[Demand], packing: Packing, places: Callable[[int, int], Sequence[str]]
) -> Assignment:
    """Give the lowest indexes to the nodes with most replicas of the first demands, such as parameter servers:
    shrinking removes remote replicas and high indexes first.
    """
    by_count = sorted(packing.items(), key=lambda item: [-count for count in item[1]])
    placed: Assignment = {}
    for position, demand in enumerate(demands):
        found = (place for row, _ in by_count for place in places(row, position))
        placed |= {Replica(demand.type, index): place for index, place in enumerate(found)}
    return placed


def _own_rows(near: Mapping[Replica, str], anchors: AbstractSet[ReplicaType], ledger: NodeLedger) -> list[int]:
    """The rows of these replicas' nodes: those with most anchors first, then those with most replicas."""
    present = {replica: node_of(place) for replica, place in near.items() if place in ledger.nodes.row_of}
    anchored = Counter(node for replica, node in present.items() if replica.type in anchors)
    others = Counter(present.values())
    names = sorted(others, key=lambda node: (-anchored[node], -others[node], node))
    return [ledger.nodes.row_of[name] for name in names]


def _take_near(demand: Demand, wanted: int, ledger: NodeLedger, own_rows: Sequence[int]) -> list[str]:
    """Take places for as many replicas as there is room for, the gang's own nodes first."""
    request = ledger.requests.of(demand)
    room = np.minimum(ledger.room(request), wanted)
    shares: list[RowShare] = []
    for row in own_rows:
        taken = min(int(room[row]), wanted)
        shares.append((row, taken))
        wanted -= taken
    room[list(own_rows)] = 0
    shares += choose_rows(demand, min(wanted, int(room.sum())), ledger, own_rows)
    return [place for row, taken in shares for place in ledger.take_replicas(row, request, taken)]


def _take_spread(demand: Demand, wanted: int, ledger: NodeLedger, gang: Mapping[Replica, str]) -> list[str]:
    """Do as `_take_near`, within the demand's spread constraints."""
    placer = TopologyPlacer([demand], ledger)
    for replica, node in gang.items():
        if node in ledger.nodes.row_of:
            placer.record(replica.type, ledger.nodes.row_of[node])
    return placer.place(demand, wanted)
