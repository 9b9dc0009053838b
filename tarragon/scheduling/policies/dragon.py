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
from tarragon.scheduling.actions.grow import grow
from tarragon.scheduling.actions.order import in_order
from tarragon.scheduling.actions.preempt import Preemption
from tarragon.scheduling.actions.reservations import Reservations
from tarragon.scheduling.actions.running import settle
from tarragon.scheduling.api.decision import AboutGang, Again, Decision, Resize, Wait
from tarragon.scheduling.api.snapshot import Gang, RunningGang, Snapshot
from tarragon.scheduling.cycle.scheduling_cycle import Kind, Round, lacks
from tarragon.scheduling.cycle.shrink import Spares
from tarragon.scheduling.placement.fit import could_fit
from tarragon.scheduling.state.memory import Memory

GANGS_A_ROUND = 4
"""The number of starving gangs for which others shrink in one cycle. The next ones follow in the next cycles."""
TRIES = 16
"""The maximum number of full simulations in one cycle; quick checks come before them."""
_LONG_AGO = dt.datetime.min.replace(tzinfo=dt.UTC)


def dragon(snapshot: Snapshot, memory: Memory) -> Sequence[Decision]:
    """Schedule displaced replicas first, then waiting gangs; then let gangs grow on what is left."""
    cycle = Round(snapshot, memory)
    settle(cycle)
    shrinking, preemption, reservations = _Shrinking(cycle), Preemption(cycle), Reservations(cycle)
    for standing in map(cycle.standing, _displaced_demands(cycle)):
        gang, kind = standing.gang, cycle.kinds[standing.shape]
        decision: AboutGang | None = cycle.hopeless(standing, kind) or cycle.promised(gang, kind)
        if decision is None and shrinking.wait(gang, kind) is None:
            reservations.wait(standing, kind)
    for standing, kind in reservations.asking(in_order(cycle)):
        gang = standing.gang
        decision = cycle.hopeless(standing, kind) or cycle.started(gang, kind) or cycle.promised(gang, kind)
        decision = decision or shrinking.wait(gang, kind) or preemption.wait(gang, kind)
        cycle.add(decision or reservations.wait(standing, kind))
    at = grow(cycle, reservations.young)
    return [*cycle.decisions, *reservations.again(), *([] if at is None else [Again(at)])]


class _Shrinking:
    """The resources that others give back in one cycle so that starving gangs may start."""

    def __init__(self, cycle: Round) -> None:
        self._cycle = cycle
        self._gangs_left = GANGS_A_ROUND
        self._tries_left = TRIES
        self._beyond_shrinking: set[Kind] = set()
        self._reclaimable: Spares | None = None
        self._if_shrunk = cycle.soon
        self._shrunk: set[str] = set()
        self._excluded: set[str] = set()

    def wait(self, gang: Gang, kind: Kind) -> Wait | None:
        """Shrink others for this gang and return its wait; None if it is not starving, or if shrinking
        is not enough.
        """
        if not self._gangs_left or not self._cycle.is_aged(gang):
            return None
        if kind in self._beyond_shrinking:
            return None
        reclaimable = self._reclaimable_now()
        resizes = None
        if self._tries_left and not lacks(kind, self._if_shrunk) and could_fit(kind.smallest, self._if_shrunk):
            self._tries_left -= 1
            resizes = reclaimable.given_up(kind.smallest, self._cycle.soon)
        if resizes is None:
            self._beyond_shrinking.add(kind)
            return None
        self._gangs_left -= 1
        for victim, nodes in resizes:
            self._shrink(victim, nodes, f"made room for {gang.name}")
        return self._cycle.promised(gang, kind)

    def _reclaimable_now(self) -> Spares:
        """Return what can be reclaimed from gangs about which nothing else is decided."""
        decided = self._cycle.changed - self._shrunk
        if self._reclaimable is None:
            self._reclaimable, self._excluded = self._cycle.spares(), decided
            self._reclaimable.forget(decided)
            self._if_shrunk = self._reclaimable.all_of_it(self._cycle.soon)
        elif decided != self._excluded:
            self._reclaimable.forget(decided)
            self._excluded = decided
        return self._reclaimable

    def _shrink(self, gang: RunningGang, nodes: Mapping[Replica, str], reason: str) -> None:
        """Resize a gang, replacing this cycle's earlier decision about it: only the last one counts."""
        if gang.name in self._shrunk:
            decisions = self._cycle.decisions
            decisions[:] = [each for each in decisions if not isinstance(each, Resize) or each.gang != gang.name]
        self._shrunk.add(gang.name)
        self._cycle.resize(gang, nodes, reason)


def _displaced_demands(cycle: Round) -> Iterator[Gang]:
    """Yield what running gangs lost with a node and need for their minimum, as gangs that have waited very long."""
    settled = {decision.gang: decision.nodes for decision in cycle.decisions if isinstance(decision, Resize)}
    for gang in cycle.snapshot.running:
        if not gang.homeless:
            continue
        nodes = settled.get(gang.name, gang.nodes)
        lost = {replica for replica in gang.homeless & nodes.keys() if nodes[replica] == gang.nodes[replica]}
        demands = []
        for demand in gang.demands:
            lost_count = sum(replica.type is demand.type for replica in lost)
            remaining = sum(replica.type is demand.type for replica in nodes) - lost_count
            needed = min(lost_count, max(0, demand.minimum - remaining))
            demands.append(replace(demand, minimum=needed, wish=needed, maximum=0))
        if any(demand.minimum for demand in demands):
            yield Gang(name=gang.name, queued=_LONG_AGO, demands=demands, priority=gang.priority, preempts=False)
