"""Preempts gangs for one of higher priority: no more than necessary, and none if it could not start even then.

Elastic gangs first shrink towards their minimum. If that is too little, some gangs are evicted as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tarragon.scheduling.api.decision import PREEMPTED, Defer, made_room_for
from tarragon.scheduling.api.snapshot import RunningGang, WaitingGang
from tarragon.scheduling.cycle.scheduling_cycle import SchedulingCycle, ShapeState
from tarragon.scheduling.cycle.shrink import ReclaimablePool
from tarragon.scheduling.cycle.victims import has_room_for_each, searches_per_cycle, select_victims
from tarragon.scheduling.placement.fit import is_feasible
from tarragon.scheduling.state.ledger import NodeLedger
from tarragon.scheduling.state.node_requests import Amounts

MAX_PREEMPTIONS_PER_CYCLE = 2
"""The number of gangs that preempt others in one cycle; see `searches_per_cycle`."""


@dataclass(frozen=True, slots=True, eq=False)
class _LowerPriority:
    """The gangs below a priority in the order of eviction, and what they hold."""

    key: tuple[int, int, int]
    """The priority, the number of changed gangs, and the ledger's version for which this was computed."""
    order: Amounts
    all_evicted: NodeLedger
    """The ledger as if all of them had ended."""


class Preemption:
    """The preemptions of one cycle."""

    def __init__(self, cycle: SchedulingCycle) -> None:
        self._cycle = cycle
        most = searches_per_cycle(MAX_PREEMPTIONS_PER_CYCLE, len(cycle.nodes))
        self._preemptions_left = most if cycle.snapshot.rules.is_preemption_enabled else 0
        self._lowest_priority = min((gang.priority for gang in cycle.snapshot.running), default=None)
        self._eviction_order: tuple[Amounts, Amounts] | None = None
        self._reclaimable: ReclaimablePool | None = None
        self._lower: _LowerPriority | None = None

    def preempt_for(self, gang: WaitingGang, kind: ShapeState) -> Defer | None:
        """Preempt others for this gang and return its wait; None if it may not preempt, or if
        preemption is not enough.
        """
        if (
            not self._preemptions_left
            or not gang.can_preempt
            or self._lowest_priority is None
            or gang.priority <= self._lowest_priority
        ):
            return None
        if kind.futile_preemption_priority is not None and gang.priority <= kind.futile_preemption_priority:
            return None
        if not (self._may_suffice(gang, kind) and (self._shrink(gang, kind) or self._evict(gang, kind))):
            kind.futile_preemption_priority = gang.priority
            return None
        self._preemptions_left -= 1
        return self._cycle.try_reserve_releasing(gang, kind)

    def _may_suffice(self, gang: WaitingGang, kind: ShapeState) -> bool:
        """Whether each demand by itself would have room if all gangs of lower priority ended: a quick check that
        rejects nearly all gangs, before the search for the few that have to end.
        """
        return has_room_for_each(kind.minimum_demands, self._lower_than(gang.priority).all_evicted)

    def _shrink(self, gang: WaitingGang, kind: ShapeState) -> bool:
        """Shrink elastic gangs towards their minimum, if that is enough."""
        cycle = self._cycle
        reclaimable = self._reclaimable_now()
        resizes = reclaimable.reclaim(kind.minimum_demands, cycle.future_free, gang.priority) or []
        for victim, nodes in resizes:
            cycle.resize(victim, nodes, made_room_for(gang.name))
        return bool(resizes)

    def _evict(self, gang: WaitingGang, kind: ShapeState) -> bool:
        victims = self._select_victims(gang, kind)
        for victim in victims:
            message = f"{gang.name} has priority {gang.priority}, this job has priority {victim.priority}"
            self._cycle.evict(victim, PREEMPTED, message)
        if victims and not is_feasible(kind.minimum_demands, self._cycle.future_free):
            self._shrink(gang, kind)
        return bool(victims)

    def _select_victims(self, gang: WaitingGang, kind: ShapeState) -> list[RunningGang]:
        """Select the gangs that have to be evicted even if all gangs of lower priority shrink to their minimum. What
        they give back that way is not counted again when they are evicted.
        """
        cycle, order = self._cycle, self._lower_than(gang.priority).order
        if not len(order):
            return []
        reclaimable = self._reclaimable_now().allocations(gang.priority)
        shrunk = cycle.future_free.with_released(reclaimable.rows, reclaimable.amounts)
        victims = select_victims(kind.minimum_demands, order, cycle.allocations.minus(reclaimable), shrunk)
        return [] if victims is None else [cycle.snapshot.running[index] for index in victims.indexes]

    def _lower_than(self, priority: int) -> _LowerPriority:
        """Return the gangs below a priority. Kept until something changes, as for most gangs they hold too little."""
        cycle = self._cycle
        key = priority, len(cycle.changed_gangs), cycle.future_free.version
        if self._lower is None or self._lower.key != key:
            order, priorities = self._in_eviction_order()
            lower = cycle.without_changed(order[: np.searchsorted(priorities, priority)])
            all_evicted = cycle.allocations.ledger_without(lower, cycle.future_free)
            self._lower = _LowerPriority(key, lower, all_evicted)
        return self._lower

    def _reclaimable_now(self) -> ReclaimablePool:
        cycle = self._cycle
        if self._reclaimable is None:
            self._reclaimable = cycle.reclaimable_pool()
        self._reclaimable.exclude(cycle.changed_gangs)
        return self._reclaimable

    def _in_eviction_order(self) -> tuple[Amounts, Amounts]:
        """Return the indexes of running gangs in the order of eviction, and their priorities: lowest priority first,
        then the youngest, which loses least. Gangs are sorted by name, and the sort is stable.
        """
        if self._eviction_order is None:
            priorities = np.array([gang.priority for gang in self._cycle.snapshot.running], np.int64)
            order = np.lexsort((-self._cycle.admission_times, priorities))
            self._eviction_order = order, priorities[order]
        return self._eviction_order
