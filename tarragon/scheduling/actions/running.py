"""What every policy does for running gangs: shrink to a lower requested size, replace lost nodes, and grow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from tarragon.job.model import Replica
from tarragon.scheduling.api.rules import span
from tarragon.scheduling.api.snapshot import Demand, RunningGang
from tarragon.scheduling.cycle.scheduling_cycle import Round, amounts_of
from tarragon.scheduling.cycle.shrink import lonely_last
from tarragon.scheduling.placement.fit import extend

WISHED = "as requested"
MOVED = "its node is no longer available"
IDLE = "nodes are idle"


def settle(cycle: Round) -> None:
    """Apply lower requested sizes and give displaced replicas other nodes, before any gang starts."""
    for gang in cycle.snapshot.running:
        if cycle.memory.staying.of(gang, _is_unaffected):
            continue
        nodes = staying(gang)
        lost = sorted(gang.homeless & nodes.keys())
        if lost:
            demands = {demand.type: demand for demand in gang.demands}
            unaffected = {replica: node for replica, node in nodes.items() if replica not in gang.homeless}
            found = extend([(replica, demands[replica.type]) for replica in lost], cycle.free, near=unaffected)
            cycle.moved(gang, found)
            nodes = {**nodes, **found}
        if nodes != gang.nodes:
            cycle.resize(gang, nodes, WISHED if len(nodes) < len(gang.nodes) else MOVED)


def grow_to_wish(cycle: Round) -> None:
    """Grow gangs to their requested size. After a resize a gang keeps its size for a while, unless more was requested
    since.
    """
    now, cool_down = cycle.snapshot.now, span(cycle.snapshot.rules.cool_down)
    for gang in cycle.snapshot.running:
        is_cooling_down = gang.resized is not None and now < gang.resized + cool_down
        if gang.elastic and gang.name not in cycle.changed and (has_risen(gang) or not is_cooling_down):
            _grow_to_request(gang, cycle)


def staying(gang: RunningGang) -> Mapping[Replica, str]:
    """Return the gang's nodes, without replicas beyond the requested size if that was lowered since the
    last decision.
    """
    counts = Counter(replica.type for replica in gang.nodes)
    demands = {demand.type: demand for demand in gang.demands}
    if all(
        replica_type in demands and count <= _largest_kept(gang, demands[replica_type])
        for replica_type, count in counts.items()
    ):
        return gang.nodes
    kept = {replica for demand in gang.demands for replica in lonely_last(gang, demand)[: _largest_kept(gang, demand)]}
    return {replica: node for replica, node in gang.nodes.items() if replica in kept}


def _is_unaffected(gang: RunningGang) -> bool:
    return not gang.homeless and staying(gang) == gang.nodes


def has_risen(gang: RunningGang) -> bool:
    """Whether a larger size was requested since the last decision."""
    return any(demand.wish > gang.wished.get(demand.type, demand.wish) for demand in gang.demands)


def missing(gang: RunningGang) -> Iterator[tuple[Replica, Demand]]:
    """Yield the requested replicas that the gang does not have, lowest index first."""
    for demand in gang.demands:
        for index in range(demand.wish):
            replica = Replica(demand.type, index)
            if replica not in gang.nodes:
                yield replica, demand


def _grow_to_request(gang: RunningGang, cycle: Round) -> None:
    lacking = list(missing(gang))
    permitted = cycle.shares.permitted(gang.queue, lacking)
    if not permitted or (gang.whole and len(permitted) < len(lacking)):
        return
    added = extend(permitted, cycle.free, near=gang.nodes)
    if gang.whole and len(added) < len(lacking):
        cycle.free.undo(added, amounts_of(gang.demands, added))
    elif added:
        cycle.taken(gang, added)
        cycle.resize(gang, {**gang.nodes, **added}, WISHED if has_risen(gang) else IDLE)


def _largest_kept(gang: RunningGang, demand: Demand) -> int:
    """The largest size that the gang may keep: up to its maximum on idle resources, until a smaller
    size is requested.
    """
    wished = gang.wished.get(demand.type)
    if wished is None or demand.wish < wished:
        return demand.wish
    return max(demand.wish, demand.maximum)
