"""The policy of DRAGON's README: backfilling, shrinking elastic gangs for starving ones, and growing on idle nodes.

Each cycle starts as many gangs as there is room for, in queue order. For a starving gang, others give back replicas
above their minimum, but only if it can start then; what is being released for it is reserved. Where that is not enough,
nodes are reserved for it as they become free, so that it neither blocks others nor is passed for good.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tarragon.job.model import Replica
from tarragon.scheduling.actions.grow import grow_elastic_gangs
from tarragon.scheduling.actions.preempt import Preemption
from tarragon.scheduling.actions.queue_order import in_queue_order
from tarragon.scheduling.actions.reservations import NodeReservations
from tarragon.scheduling.actions.running_gangs import settle_running_gangs
from tarragon.scheduling.api.decision import Decision, Defer, GangDecision, RequeueAt, Resize, made_room_for
from tarragon.scheduling.api.snapshot import RunningGang, Snapshot, WaitingGang
from tarragon.scheduling.cycle.scheduling_cycle import SchedulingCycle, ShapeState, is_known_to_lack
from tarragon.scheduling.cycle.shrink import ReclaimablePool
from tarragon.scheduling.placement.fit import is_feasible
from tarragon.scheduling.state.memory import Memory

MAX_SHRINKS_PER_CYCLE = 4
"""The number of starving gangs for which others shrink in one cycle. The next ones follow in the next cycles."""
MAX_SIMULATIONS_PER_CYCLE = 16
"""The maximum number of full simulations in one cycle; quick checks come before them."""
_LONG_AGO = dt.datetime.min.replace(tzinfo=dt.UTC)


def dragon(snapshot: Snapshot, memory: Memory) -> Sequence[Decision]:
    """Schedule displaced replicas first, then waiting gangs; then let gangs grow on what is left."""
    cycle = SchedulingCycle(snapshot, memory)
    settle_running_gangs(cycle)
    shrinking, preemption, reservations = _Shrinking(cycle), Preemption(cycle), NodeReservations(cycle)
    for standing in map(cycle.new_entry, _displaced_demands(cycle)):
        gang, kind = standing.gang, cycle.shape_states[standing.shape]
        decision: GangDecision | None = cycle.defer_unschedulable(standing, kind) or cycle.try_reserve_releasing(
            gang, kind
        )
        if decision is None and shrinking.wait(gang, kind) is None:
            reservations.defer(standing, kind)
    for standing, kind in reservations.undecided(in_queue_order(cycle)):
        gang = standing.gang
        decision = (
            cycle.defer_unschedulable(standing, kind)
            or cycle.try_admit(gang, kind)
            or cycle.try_reserve_releasing(gang, kind)
        )
        decision = decision or shrinking.wait(gang, kind) or preemption.preempt_for(gang, kind)
        cycle.add(decision or reservations.defer(standing, kind))
    at = grow_elastic_gangs(cycle, reservations.not_starving)
    return [*cycle.decisions, *reservations.requeue(), *([] if at is None else [RequeueAt(at)])]


class _Shrinking:
    """The resources that others give back in one cycle so that starving gangs may start."""

    def __init__(self, cycle: SchedulingCycle) -> None:
        self._cycle = cycle
        self._gangs_left = MAX_SHRINKS_PER_CYCLE
        self._tries_left = MAX_SIMULATIONS_PER_CYCLE
        self._beyond_shrinking: set[ShapeState] = set()
        self._reclaimable: ReclaimablePool | None = None
        self._if_shrunk = cycle.future_free
        self._shrunk: set[str] = set()
        self._excluded: set[str] = set()

    def wait(self, gang: WaitingGang, kind: ShapeState) -> Defer | None:
        """Shrink others for this gang and return its wait; None if it is not starving, or if shrinking
        is not enough.
        """
        if not self._gangs_left or not self._cycle.is_starving(gang):
            return None
        if kind in self._beyond_shrinking:
            return None
        reclaimable = self._reclaimable_now()
        resizes = None
        if (
            self._tries_left
            and not is_known_to_lack(kind, self._if_shrunk)
            and is_feasible(kind.minimum_demands, self._if_shrunk)
        ):
            self._tries_left -= 1
            resizes = reclaimable.reclaim(kind.minimum_demands, self._cycle.future_free)
        if resizes is None:
            self._beyond_shrinking.add(kind)
            return None
        self._gangs_left -= 1
        for victim, nodes in resizes:
            self._shrink(victim, nodes, made_room_for(gang.name))
        return self._cycle.try_reserve_releasing(gang, kind)

    def _reclaimable_now(self) -> ReclaimablePool:
        """Return what can be reclaimed from gangs about which nothing else is decided."""
        decided = self._cycle.changed_gangs - self._shrunk
        if self._reclaimable is None:
            self._reclaimable, self._excluded = self._cycle.reclaimable_pool(), decided
            self._reclaimable.exclude(decided)
            self._if_shrunk = self._reclaimable.ledger_if_all_reclaimed(self._cycle.future_free)
        elif decided != self._excluded:
            self._reclaimable.exclude(decided)
            self._excluded = decided
        return self._reclaimable

    def _shrink(self, gang: RunningGang, nodes: Mapping[Replica, str], reason: str) -> None:
        """Resize a gang, replacing this cycle's earlier decision about it: only the last one counts."""
        if gang.name in self._shrunk:
            decisions = self._cycle.decisions
            decisions[:] = [each for each in decisions if not isinstance(each, Resize) or each.gang != gang.name]
        self._shrunk.add(gang.name)
        self._cycle.resize(gang, nodes, reason)


def _displaced_demands(cycle: SchedulingCycle) -> Iterator[WaitingGang]:
    """Yield what running gangs lost with a node and need for their minimum, as gangs that have waited very long."""
    settled = {decision.gang: decision.nodes for decision in cycle.decisions if isinstance(decision, Resize)}
    for gang in cycle.snapshot.running:
        if not gang.displaced:
            continue
        nodes = settled.get(gang.name, gang.nodes)
        lost = {replica for replica in gang.displaced & nodes.keys() if nodes[replica] == gang.nodes[replica]}
        demands = []
        for demand in gang.demands:
            lost_count = sum(replica.type == demand.type for replica in lost)
            remaining = sum(replica.type == demand.type for replica in nodes) - lost_count
            needed = min(lost_count, max(0, demand.minimum - remaining))
            demands.append(replace(demand, minimum=needed, requested=needed, maximum=0))
        if any(demand.minimum for demand in demands):
            yield WaitingGang(
                name=gang.name, queued_at=_LONG_AGO, demands=demands, priority=gang.priority, can_preempt=False
            )
