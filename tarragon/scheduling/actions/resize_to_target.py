"""Gives running gangs their target sizes: what to remove, what to add where, and what to move together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from tarragon.job.model import Replica, ReplicaType
from tarragon.job.places import node_of
from tarragon.scheduling.actions.target_sizes import TargetSizes, fixed_replicas, pays
from tarragon.scheduling.api.decision import PREEMPTED, ResizeReason
from tarragon.scheduling.api.snapshot import Demand, RunningGang
from tarragon.scheduling.cycle.scheduling_cycle import SchedulingCycle
from tarragon.scheduling.cycle.shrink import remote_last
from tarragon.scheduling.placement.fit import Assignment, assign, assign_more
from tarragon.scheduling.state.candidates import Candidate

LOCALITY_SPEEDUP = 1.5
"""What a gang is assumed to gain by having all its replicas on one node. On two nodes, Pollux' models are slower by a
fifth to a half.
"""
MOVED_TOGETHER = "moved to one node"
STOPPED = "others make better use of its resources for now"
SHRUNK = "made room for jobs that gain more"


def shrink_to_targets(cycle: SchedulingCycle, targets: TargetSizes) -> bool:
    """Shrink and stop the gangs that have more than their target. Return whether there was any."""
    smaller = [candidate for candidate in targets.running if targets.of(candidate.gang) < candidate.size]
    for candidate in smaller:
        if isinstance(candidate.gang, RunningGang):
            _shrink(candidate.gang, candidate, targets.of(candidate.gang), cycle)
    return bool(smaller)


def enlarge_to_target(candidate: Candidate, size: int, cycle: SchedulingCycle) -> None:
    """Enlarge a gang on free resources: on one node if it moves there for that, else near what it has."""
    gang = candidate.gang
    # A move needs as much beside what the gang gives back.
    if not isinstance(gang, RunningGang) or cycle.free.is_known_to_lack(candidate.request, size - candidate.size):
        return
    nodes: Mapping[Replica, str] = {}
    if not _has_room_on_its_node(candidate, size, cycle):
        nodes = _moved(gang, candidate.demand, size, cycle)
    nodes = nodes or _extended(gang, candidate.demand, size, cycle)
    if nodes:
        cycle.resize(gang, nodes, ResizeReason.NODES_IDLE)


def move_together(cycle: SchedulingCycle, targets: TargetSizes) -> None:
    """Move gangs that are spread over nodes to one node with room for all of them, where that pays."""
    for candidate in targets.running:
        gang = candidate.gang
        if candidate.node_count == 1 or not isinstance(gang, RunningGang) or gang.name in cycle.changed_gangs:
            continue
        if not pays(candidate, candidate.speed * LOCALITY_SPEEDUP):
            continue
        if not _could_be_on_one_node(candidate, cycle):
            continue
        nodes = _moved(gang, candidate.demand, candidate.size, cycle, most_nodes=1)
        if nodes:
            cycle.resize(gang, nodes, MOVED_TOGETHER)


def _has_room_on_its_node(candidate: Candidate, size: int, cycle: SchedulingCycle) -> bool:
    """Whether the gang is on one node, and could grow to this size there, as no rule spreads it."""
    if candidate.node_count != 1 or len(candidate.replicas_by_node) != 1 or candidate.demand.topology_constraints:
        return False
    row = cycle.nodes.row_of.get(next(iter(candidate.replicas_by_node)))
    return row is not None and int(cycle.free.room(candidate.request)[row]) >= size - candidate.size


def _could_be_on_one_node(candidate: Candidate, cycle: SchedulingCycle) -> bool:
    """Whether some node has room for all replicas of the demand that are not there yet: a quick check."""
    if cycle.free.most_on_one_node(candidate.request) >= candidate.size:
        return True
    room, rows = cycle.free.room(candidate.request), cycle.nodes.row_of
    for node, count in candidate.replicas_by_node.items():
        if node in rows and room[rows[node]] >= candidate.size - count:
            return True
    return False


def _shrink(gang: RunningGang, candidate: Candidate, size: int, cycle: SchedulingCycle) -> None:
    if not size:
        cycle.evict(gang, PREEMPTED, STOPPED)
        return
    kept, kind = set(_kept(gang, candidate, size)), candidate.demand.type
    nodes = {replica: node for replica, node in gang.nodes.items() if replica.type != kind or replica in kept}
    cycle.resize(gang, nodes, SHRUNK)


def _kept(gang: RunningGang, candidate: Candidate, size: int) -> Sequence[Replica]:
    """Choose the replicas to keep: those that are fixed, such as the first one, and what is beside it, then those of as
    few other nodes as possible.
    """
    fixed = fixed_replicas(candidate)
    ordered = [replica for replica in remote_last(gang, candidate.demand) if replica not in fixed]
    if gang.resizes_by_restart or gang.anchor_types:
        return [*fixed, *ordered][:size]
    by_node: dict[str, list[Replica]] = {}
    for replica in ordered:
        by_node.setdefault(node_of(gang.nodes[replica]), []).append(replica)
    kept = [*fixed, *by_node.pop(node_of(gang.nodes[fixed[0]]), [])][:size]
    others = list(by_node.values())
    while others and len(kept) < size:
        missing = size - len(kept)
        enough = [replicas for replicas in others if len(replicas) >= missing]
        chosen = min(enough, key=len) if enough else max(others, key=len)
        others.remove(chosen)
        kept += chosen[:missing]
    return kept


def _extended(gang: RunningGang, demand: Demand, size: int, cycle: SchedulingCycle) -> Mapping[Replica, str]:
    """Add the missing replicas on free resources; empty if there is too little for all."""
    count = size - _size_of(gang, demand)
    candidates = (Replica(demand.type, index) for index in range(demand.upper_limit))
    missing = [(replica, demand) for replica in candidates if replica not in gang.nodes][:count]
    if len(cycle.usage.within_quota(gang.queue, missing)) < len(missing):
        return {}
    added = assign_more(missing, cycle.free, near=gang.nodes, anchors=gang.anchor_types)
    if len(added) < len(missing):
        cycle.free.release_all(added, gang.demands)
        return {}
    cycle.record_allocation(gang, added)
    return {**gang.nodes, **added}


def _moved(
    gang: RunningGang, demand: Demand, size: int, cycle: SchedulingCycle, most_nodes: int | None = None
) -> Mapping[Replica, str]:
    """Place the gang anew on what is free and what it holds, on as few nodes as possible; empty if it does not fit.

    What a replica leaves is not free yet: nothing is placed on it.
    """
    growth = [(Replica(demand.type, index), demand) for index in range(size - _size_of(gang, demand))]
    if gang.anchor_types or len(cycle.usage.within_quota(gang.queue, growth)) < len(growth):
        return {}
    placed = _placed_anew(gang, demand, size, cycle)
    if placed is None or (most_nodes is not None and len(set(map(node_of, placed.values()))) > most_nodes):
        return {}
    kept, moved = _with_few_moves(gang.nodes, placed)
    taken = _take_on_nodes(gang, moved, cycle)
    if not taken:
        return {}
    cycle.record_allocation(gang, taken)
    return {**kept, **taken}


def _take_on_nodes(gang: RunningGang, moved: Mapping[Replica, str], cycle: SchedulingCycle) -> Assignment:
    """Take places on these nodes for replicas; empty if one of the nodes has too little."""
    demands = {demand.type: demand for demand in gang.demands}
    taken: Assignment = {}
    for (kind, node), group in groupby(sorted(moved.items(), key=_type_and_node), key=_type_and_node):
        replicas, row = [replica for replica, _ in group], cycle.nodes.row_of[node]
        request = cycle.memory.requests.of(demands[kind])
        if int(cycle.free.room(request)[row]) < len(replicas):
            cycle.free.release_all(taken, gang.demands)
            return {}
        taken |= zip(replicas, cycle.free.take_replicas(row, request, len(replicas)), strict=True)
    return taken


def _type_and_node(item: tuple[Replica, str]) -> tuple[ReplicaType, str]:
    replica, node = item
    return replica.type, node


def _size_of(gang: RunningGang, demand: Demand) -> int:
    return sum(replica.type == demand.type for replica in gang.nodes)


def _placed_anew(gang: RunningGang, demand: Demand, size: int, cycle: SchedulingCycle) -> Assignment | None:
    ledger = cycle.free.copy()
    ledger.release_all(gang.nodes, gang.demands)
    counts = {**Counter(replica.type for replica in gang.nodes), demand.type: size}
    fixed = [
        replace(each, minimum=counts.get(each.type, 0), requested=counts.get(each.type, 0), maximum=0)
        for each in gang.demands
    ]
    return assign(fixed, ledger)


def _with_few_moves(before: Mapping[Replica, str], placed: Assignment) -> tuple[Assignment, dict[Replica, str]]:
    """Give the nodes to the gang's replicas so that as many as possible stay where they are, also on their vGPU. Return
    the places of those, and the nodes of the others.
    """
    left = Counter((replica.type, node_of(place)) for replica, place in placed.items())
    kept: Assignment = {}
    for replica, place in sorted(before.items()):
        if left[replica.type, node_of(place)] > 0:
            left[replica.type, node_of(place)] -= 1
            kept[replica] = place
    vacant: dict[ReplicaType, list[str]] = {}
    for (kind, node), count in sorted(left.items()):
        vacant.setdefault(kind, []).extend([node] * count)
    moved: dict[Replica, str] = {}
    for replica in sorted({*placed, *before}):
        if replica not in kept and vacant.get(replica.type):
            moved[replica] = vacant[replica.type].pop()
    return kept, moved
