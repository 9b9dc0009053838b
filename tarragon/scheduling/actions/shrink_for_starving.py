"""Shrinks elastic gangs for starving ones: no more than necessary, and only if these can start then."""

from __future__ import annotations

from collections.abc import Mapping

from tarragon.job.model import Replica
from tarragon.scheduling.api.decision import Defer, Resize, made_room_for
from tarragon.scheduling.api.snapshot import RunningGang, WaitingGang
from tarragon.scheduling.cycle.scheduling_cycle import SchedulingCycle, ShapeState, is_known_to_lack
from tarragon.scheduling.cycle.shrink import ReclaimablePool
from tarragon.scheduling.cycle.victims import searches_per_cycle
from tarragon.scheduling.placement.fit import is_feasible

MAX_SHRINKS_PER_CYCLE = 4
"""The number of starving gangs for which others shrink in one cycle; see `searches_per_cycle`."""
MAX_SIMULATIONS_PER_CYCLE = 16
"""The maximum number of full simulations in one cycle; quick checks come before them."""


class Shrinking:
    """The resources that others give back in one cycle so that starving gangs may start."""

    def __init__(self, cycle: SchedulingCycle) -> None:
        self._cycle = cycle
        self._gangs_left = searches_per_cycle(MAX_SHRINKS_PER_CYCLE, len(cycle.nodes))
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
