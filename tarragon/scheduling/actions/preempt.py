"""Preempts gangs for one of higher priority: no more than necessary, and none if it could not start even then.

Elastic gangs first shrink towards their minimum. If that is too little, some gangs are evicted as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tarragon.scheduling.api.decision import PREEMPTED, Wait
from tarragon.scheduling.api.snapshot import Gang, RunningGang
from tarragon.scheduling.cycle.preemption_simulation import Holdings
from tarragon.scheduling.cycle.scheduling_cycle import Kind, Round
from tarragon.scheduling.cycle.shrink import Spares
from tarragon.scheduling.cycle.victims import fewest
from tarragon.scheduling.placement.fit import could_fit
from tarragon.scheduling.state.ledger import Ledger
from tarragon.scheduling.state.node_requests import Amounts

PREEMPTIONS_A_ROUND = 2
"""The number of gangs that preempt others in one cycle. The next ones follow in the next cycles."""


@dataclass(frozen=True, slots=True, eq=False)
class _LowerPriority:
    """The gangs below a priority in the order of eviction, and what they hold."""

    key: tuple[int, int, int]
    """The priority, the number of changed gangs, and the ledger's version for which this was computed."""
    order: Amounts
    held: Holdings
    soon: Ledger


class Preemption:
    """The preemptions of one cycle."""

    def __init__(self, cycle: Round) -> None:
        self._cycle = cycle
        self._preemptions_left = PREEMPTIONS_A_ROUND if cycle.snapshot.rules.preempts else 0
        self._lowest_priority = min((gang.priority for gang in cycle.snapshot.running), default=None)
        self._eviction_order: tuple[Amounts, Amounts] | None = None
        self._reclaimable: Spares | None = None
        self._lower: _LowerPriority | None = None

    def wait(self, gang: Gang, kind: Kind) -> Wait | None:
        """Preempt others for this gang and return its wait; None if it may not preempt, or if
        preemption is not enough.
        """
        if (
            not self._preemptions_left
            or not gang.preempts
            or self._lowest_priority is None
            or gang.priority <= self._lowest_priority
        ):
            return None
        if kind.in_vain is not None and gang.priority <= kind.in_vain:
            return None
        if not self._shrink(gang, kind) and not self._evict(gang, kind):
            kind.in_vain = gang.priority
            return None
        self._preemptions_left -= 1
        return self._cycle.promised(gang, kind)

    def _shrink(self, gang: Gang, kind: Kind) -> bool:
        """Shrink elastic gangs towards their minimum, if that is enough."""
        cycle = self._cycle
        reclaimable = self._reclaimable_now()
        resizes = reclaimable.given_up(kind.smallest, cycle.soon, gang.priority) or []
        for victim, nodes in resizes:
            cycle.resize(victim, nodes, f"made room for {gang.name}")
        return bool(resizes)

    def _evict(self, gang: Gang, kind: Kind) -> bool:
        victims = self._select_victims(gang, kind)
        for victim in victims:
            message = f"{gang.name} has priority {gang.priority}, this job has priority {victim.priority}"
            self._cycle.evict(victim, PREEMPTED, message)
        if victims and not could_fit(kind.smallest, self._cycle.soon):
            self._shrink(gang, kind)
        return bool(victims)

    def _select_victims(self, gang: Gang, kind: Kind) -> list[RunningGang]:
        """Select the gangs that have to be evicted even if all gangs of lower priority shrink to their minimum."""
        lower = self._lower_than(gang.priority)
        victims = fewest(kind.smallest, lower.order, lower.held, lower.soon) if len(lower.order) else None
        return [] if victims is None else [self._cycle.snapshot.running[index] for index in victims.several]

    def _lower_than(self, priority: int) -> _LowerPriority:
        """Return the gangs below a priority, as if all of them had shrunk to their minimum. What they gave back that
        way is not counted again when they are evicted.

        Kept until something changes, as for most gangs it is too little.
        """
        cycle = self._cycle
        key = priority, len(cycle.changed), cycle.soon.version
        if self._lower is None or self._lower.key != key:
            order, priorities = self._in_eviction_order()
            lower = cycle.unchanged(order[: np.searchsorted(priorities, priority)])
            reclaimable = self._reclaimable_now().holdings(priority)
            soon = cycle.soon.given(reclaimable.rows, reclaimable.amounts)
            self._lower = _LowerPriority(key, lower, cycle.holders.less(reclaimable), soon)
        return self._lower

    def _reclaimable_now(self) -> Spares:
        cycle = self._cycle
        if self._reclaimable is None:
            self._reclaimable = cycle.spares()
        self._reclaimable.forget(cycle.changed)
        return self._reclaimable

    def _in_eviction_order(self) -> tuple[Amounts, Amounts]:
        """Return the indexes of running gangs in the order of eviction, and their priorities: lowest priority first,
        then the youngest, which loses least. Gangs are sorted by name, and the sort is stable.
        """
        if self._eviction_order is None:
            priorities = np.array([gang.priority for gang in self._cycle.snapshot.running], np.int64)
            order = np.lexsort((-self._cycle.admitted, priorities))
            self._eviction_order = order, priorities[order]
        return self._eviction_order
