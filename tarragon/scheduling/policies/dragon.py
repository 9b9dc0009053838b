"""What DRAGON's README promises: who does not fit is passed, for the aged others shrink, and idle nodes are used.

Gangs start in their order, as many in a round as there is room for. For one that is aged others give back what they
have above their minimum, but only if it can start then; what is on its way out for it nobody else gets. Where that is
not enough, places are kept for it as they become free: nobody is blocked by it, and nobody passes it for good.
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

GANGS_A_ROUND = 4
"""For so many gangs others shrink in one round; for the next ones in the rounds that follow at once."""
TRIES = 16
"""So many kinds of gang are looked at closely, at most, of those for which all that others can spare is too little."""
_LONG_AGO = dt.datetime.min.replace(tzinfo=dt.UTC)


def dragon(snapshot: Snapshot) -> Sequence[Decision]:
    """First whoever lost a place, then those who wait, then growth on what is left."""
    made = Round(snapshot)
    settle(made)
    room, preemption, reservations = _Room(made), Preemption(made), Reservations(made)
    for standing in map(made.standing, _bereft(made)):
        gang, kind = standing.gang, made.kinds[standing.shape]
        known: AboutGang | None = made.hopeless(standing, kind) or made.promised(gang, kind)
        if known is None and room.wait(gang, kind) is None:
            reservations.wait(standing, kind)
    for standing, kind in reservations.asking(in_order(made)):
        gang = standing.gang
        known = made.hopeless(standing, kind) or made.started(gang, kind) or made.promised(gang, kind)
        known = known or room.wait(gang, kind) or preemption.wait(gang, kind)
        made.add(known or reservations.wait(standing, kind))
    at = grow(made, reservations.young)
    return [*made.decisions, *reservations.again(), *([] if at is None else [Again(at)])]


class _Room:
    """What others give back so that aged gangs may start. Of one round."""

    def __init__(self, made: Round) -> None:
        self._made = made
        self._left = GANGS_A_ROUND
        self._tries = TRIES
        self._in_vain: set[int] = set()
        self._spares: Spares | None = None
        self._most = made.soon
        self._shrunk: set[str] = set()
        self._forgotten: set[str] = set()

    def wait(self, gang: Gang, kind: Kind) -> Wait | None:
        """For places that others give back for it. None if they need not, or if all of it were too little."""
        if not self._left or not self._made.is_aged(gang):
            return None
        if id(kind) in self._in_vain:
            return None
        spares = self._of_others()
        smaller = None
        if self._tries and not lacks(kind, self._most) and could_fit(kind.smallest, self._most):
            self._tries -= 1
            smaller = spares.given_up(kind.smallest, self._made.soon)
        if smaller is None:
            self._in_vain.add(id(kind))
            return None
        self._left -= 1
        for victim, nodes in smaller:
            self._shrink(victim, nodes, f"made room for {gang.name}")
        return self._made.promised(gang, kind)

    def _of_others(self) -> Spares:
        """Of those about whom nothing else is decided."""
        others = self._made.changed - self._shrunk
        if self._spares is None:
            self._spares, self._forgotten = self._made.spares(), others
            self._spares.forget(others)
            self._most = self._spares.all_of_it(self._made.soon)
        elif others != self._forgotten:
            self._spares.forget(others)
            self._forgotten = others
        return self._spares

    def _shrink(self, gang: RunningGang, nodes: Mapping[Replica, str], reason: str) -> None:
        """The last decision about a gang is the one that counts."""
        if gang.name in self._shrunk:
            decisions = self._made.decisions
            decisions[:] = [each for each in decisions if not isinstance(each, Resize) or each.gang != gang.name]
        self._shrunk.add(gang.name)
        self._made.resize(gang, nodes, reason)


def _bereft(made: Round) -> Iterator[Gang]:
    """What gangs have lost with a node and can't do without, as if it were a gang that has waited for long."""
    settled = {decision.gang: decision.nodes for decision in made.decisions if isinstance(decision, Resize)}
    for gang in made.snapshot.running:
        if not gang.homeless:
            continue
        nodes = settled.get(gang.name, gang.nodes)
        lost = {replica for replica in gang.homeless & nodes.keys() if nodes[replica] == gang.nodes[replica]}
        demands = []
        for demand in gang.demands:
            gone = sum(replica.type is demand.type for replica in lost)
            there = sum(replica.type is demand.type for replica in nodes) - gone
            needed = min(gone, max(0, demand.minimum - there))
            demands.append(replace(demand, minimum=needed, wish=needed, maximum=0))
        if any(demand.minimum for demand in demands):
            yield Gang(name=gang.name, queued=_LONG_AGO, demands=demands, priority=gang.priority, preempts=False)
