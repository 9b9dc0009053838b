"""What gangs that run get whatever the policy: a smaller size that was wished, a place for one lost, room to grow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from tarragon.job.model import Replica
from tarragon.scheduling.api.rules import span
from tarragon.scheduling.api.snapshot import Demand, RunningGang
from tarragon.scheduling.cycle.scheduling_cycle import Round, amounts_of
from tarragon.scheduling.cycle.shrink import lonely_last
from tarragon.scheduling.placement.fit import extend

WISHED = "as wished"
MOVED = "its node takes it no more"
IDLE = "nodes are idle"


def settle(made: Round) -> None:
    """Wishes that have sunk are granted at once, and who lost a node gets another place, before anybody starts."""
    for gang in made.snapshot.running:
        if made.nodes.staying.of(gang, _stays):
            continue
        stay = staying(gang)
        lost = sorted(gang.homeless & stay.keys())
        if lost:
            demands = {demand.type: demand for demand in gang.demands}
            housed = {replica: node for replica, node in stay.items() if replica not in gang.homeless}
            found = extend([(replica, demands[replica.type]) for replica in lost], made.free, near=housed)
            made.moved(gang, found)
            stay = {**stay, **found}
        if stay != gang.nodes:
            made.resize(gang, stay, WISHED if len(stay) < len(gang.nodes) else MOVED)


def grow_to_wish(made: Round) -> None:
    """One that was resized a moment ago keeps its size, unless somebody wishes more of it since."""
    now, rest = made.snapshot.now, span(made.snapshot.rules.cool_down)
    for gang in made.snapshot.running:
        rests = gang.resized is not None and now < gang.resized + rest
        if gang.elastic and gang.name not in made.changed and (has_risen(gang) or not rests):
            _grow(gang, made)


def staying(gang: RunningGang) -> Mapping[Replica, str]:
    """Without the replicas beyond the wish, if it has sunk since the size was decided."""
    there = Counter(replica.type for replica in gang.nodes)
    demands = {demand.type: demand for demand in gang.demands}
    if all(kind in demands and number <= _limit(gang, demands[kind]) for kind, number in there.items()):
        return gang.nodes
    stay = {replica for demand in gang.demands for replica in lonely_last(gang, demand)[: _limit(gang, demand)]}
    return {replica: node for replica, node in gang.nodes.items() if replica in stay}


def _stays(gang: RunningGang) -> bool:
    return not gang.homeless and staying(gang) == gang.nodes


def has_risen(gang: RunningGang) -> bool:
    """Whether somebody wishes more of it than when its size was decided."""
    return any(demand.wish > gang.wished.get(demand.type, demand.wish) for demand in gang.demands)


def missing(gang: RunningGang) -> Iterator[tuple[Replica, Demand]]:
    """What it wishes and does not have, lowest index first."""
    for demand in gang.demands:
        for index in range(demand.wish):
            replica = Replica(demand.type, index)
            if replica not in gang.nodes:
                yield replica, demand


def _grow(gang: RunningGang, made: Round) -> None:
    lacking = list(missing(gang))
    permitted = made.shares.permitted(gang.queue, lacking)
    if not permitted or (gang.whole and len(permitted) < len(lacking)):
        return
    added = extend(permitted, made.free, near=gang.nodes)
    if gang.whole and len(added) < len(lacking):
        made.free.undo(added, amounts_of(gang.demands, added))
    elif added:
        made.taken(gang, added)
        made.resize(gang, {**gang.nodes, **added}, WISHED if has_risen(gang) else IDLE)


def _limit(gang: RunningGang, demand: Demand) -> int:
    """Beyond its wish it may hold what was idle, until somebody wishes less."""
    wished = gang.wished.get(demand.type)
    if wished is None or demand.wish < wished:
        return demand.wish
    return max(demand.wish, demand.maximum)
