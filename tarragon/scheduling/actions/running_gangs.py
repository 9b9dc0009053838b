"""What every policy does for running gangs: shrink to a lower requested size, replace lost nodes, and grow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tarragon.job.model import Replica
from tarragon.scheduling.api.decision import ResizeReason
from tarragon.scheduling.api.rules import bounded_timedelta
from tarragon.scheduling.api.snapshot import Demand, RunningGang
from tarragon.scheduling.cycle.scheduling_cycle import SchedulingCycle
from tarragon.scheduling.cycle.shrink import remote_last
from tarragon.scheduling.placement.fit import assign_more


def settle_running_gangs(cycle: SchedulingCycle) -> None:
    """Apply lower requested sizes and give displaced replicas other nodes, before any gang starts."""
    running = cycle.snapshot.running
    for gang, is_unaffected in zip(running, cycle.memory.is_unaffected.get_all(running, _is_unaffected), strict=True):
        if is_unaffected:
            continue
        nodes = without_surplus(gang)
        lost = sorted(gang.displaced & nodes.keys())
        if lost:
            demands = {demand.type: demand for demand in gang.demands}
            unaffected = {replica: node for replica, node in nodes.items() if replica not in gang.displaced}
            displaced = [(replica, demands[replica.type]) for replica in lost]
            found = assign_more(displaced, cycle.free, near=unaffected, anchors=gang.anchor_types)
            cycle.record_move(gang, found)
            nodes = {**nodes, **found}
        if nodes != gang.nodes:
            is_smaller = len(nodes) < len(gang.nodes)
            cycle.resize(gang, nodes, ResizeReason.REQUESTED if is_smaller else ResizeReason.NODE_UNAVAILABLE)


def grow_to_requested(cycle: SchedulingCycle) -> None:
    """Grow gangs to their requested size. After a resize a gang keeps its size for a while, unless more was requested
    since.
    """
    now, cool_down = cycle.snapshot.now, bounded_timedelta(cycle.snapshot.rules.cool_down_seconds)
    for gang in cycle.snapshot.running:
        is_cooling_down = gang.resized_at is not None and now < gang.resized_at + cool_down
        if gang.is_elastic and gang.name not in cycle.changed_gangs and (is_scaled_up(gang) or not is_cooling_down):
            _grow(gang, list(missing_replicas(gang)), cycle)


def grow_other_demands(cycle: SchedulingCycle) -> None:
    """Give gangs what they lack of the demands whose size is not divided, such as parameter servers: the user has asked
    for more, or a gang has started without. One that restarts for that gets all that it lacks.
    """
    for gang in cycle.snapshot.running:
        if gang.is_elastic and not gang.displaced and gang.name not in cycle.changed_gangs:
            candidate = cycle.candidate(gang)
            if candidate.lacks_others:
                varied = None if gang.resizes_by_restart else candidate.demand
                lacking = [each for each in missing_replicas(gang) if each[1] is not varied]
                _grow(gang, lacking, cycle)


def without_surplus(gang: RunningGang) -> Mapping[Replica, str]:
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
    kept = {replica for demand in gang.demands for replica in remote_last(gang, demand)[: _largest_kept(gang, demand)]}
    return {replica: node for replica, node in gang.nodes.items() if replica in kept}


def _is_unaffected(gang: RunningGang) -> bool:
    return not gang.displaced and without_surplus(gang) == gang.nodes


def is_scaled_up(gang: RunningGang) -> bool:
    """Whether a larger size was requested since the last decision."""
    return any(demand.requested > gang.last_requested.get(demand.type, demand.requested) for demand in gang.demands)


def missing_replicas(gang: RunningGang) -> Iterator[tuple[Replica, Demand]]:
    """Yield the requested replicas that the gang does not have, lowest index first."""
    for demand in gang.demands:
        for index in range(demand.requested):
            replica = Replica(demand.type, index)
            if replica not in gang.nodes:
                yield replica, demand


def _grow(gang: RunningGang, lacking: Sequence[tuple[Replica, Demand]], cycle: SchedulingCycle) -> None:
    """Place these replicas; of a gang that restarts for that, all or none."""
    permitted = cycle.usage.within_quota(gang.queue, lacking)
    if not permitted or (gang.resizes_by_restart and len(permitted) < len(lacking)):
        return
    added = assign_more(permitted, cycle.free, near=gang.nodes, anchors=gang.anchor_types)
    if gang.resizes_by_restart and len(added) < len(lacking):
        cycle.free.release_all(added, gang.demands)
    elif added:
        cycle.record_allocation(gang, added)
        reason = ResizeReason.REQUESTED if is_scaled_up(gang) else ResizeReason.NODES_IDLE
        cycle.resize(gang, {**gang.nodes, **added}, reason)


def _largest_kept(gang: RunningGang, demand: Demand) -> int:
    """The largest size that the gang may keep: up to its maximum on idle resources, until a smaller
    size is requested.
    """
    wished = gang.last_requested.get(demand.type)
    if wished is None or demand.requested < wished:
        return demand.requested
    return max(demand.requested, demand.maximum)
