"""Gangs that give way to one of higher priority: no more than it takes, and none if that would not let it start.

First by what elastic ones have above their minimum; if that is too little, others give back all that they have besides.
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
"""So many gangs preempt others in one round; the next ones in the rounds that follow at once."""


@dataclass(frozen=True, slots=True, eq=False)
class _Below:
    """Gangs of lower priority than somebody, in the order in which they go, and what they hold."""

    key: tuple[int, int, int]
    """For which priority, how much was decided then, and how much had changed."""
    order: Amounts
    held: Holdings
    soon: Ledger


class Preemption:
    """Of one round."""

    def __init__(self, made: Round) -> None:
        self._made = made
        self._left = PREEMPTIONS_A_ROUND if made.snapshot.rules.preempts else 0
        self._lowest = min((gang.priority for gang in made.snapshot.running), default=None)
        self._order: tuple[Amounts, Amounts] | None = None
        self._spares: Spares | None = None
        self._below: _Below | None = None

    def wait(self, gang: Gang, kind: Kind) -> Wait | None:
        """For places that others give back for it. None if it may take none, or all of them were too few."""
        if not self._left or not gang.preempts or self._lowest is None or gang.priority <= self._lowest:
            return None
        if kind.in_vain is not None and gang.priority <= kind.in_vain:
            return None
        if not self._shrunk(gang, kind) and not self._evicted(gang, kind):
            kind.in_vain = gang.priority
            return None
        self._left -= 1
        return self._made.promised(gang, kind)

    def _shrunk(self, gang: Gang, kind: Kind) -> bool:
        """By what elastic gangs have above their minimum, if that is enough."""
        made = self._made
        spares = self._spares_now()
        smaller = spares.given_up(kind.smallest, made.soon, gang.priority) or []
        for victim, nodes in smaller:
            made.resize(victim, nodes, f"made room for {gang.name}")
        return bool(smaller)

    def _evicted(self, gang: Gang, kind: Kind) -> bool:
        victims = self._victims(gang, kind)
        for victim in victims:
            words = f"{gang.name} has a priority of {gang.priority}, this one of {victim.priority}"
            self._made.evict(victim, PREEMPTED, words)
        if victims and not could_fit(kind.smallest, self._made.soon):
            self._shrunk(gang, kind)
        return bool(victims)

    def _victims(self, gang: Gang, kind: Kind) -> list[RunningGang]:
        """Those that have to give back all even if all the others of lower priority give what they can spare."""
        below = self._those_below(gang.priority)
        ends = fewest(kind.smallest, below.order, below.held, below.soon) if len(below.order) else None
        return [] if ends is None else [self._made.snapshot.running[number] for number in ends.several]

    def _those_below(self, priority: int) -> _Below:
        """As if all elastic ones gave what they can spare, of which who ends gives nothing besides. Kept while nothing
        changes: most that ask find it too little.
        """
        made = self._made
        key = priority, len(made.changed), made.soon.version
        if self._below is None or self._below.key != key:
            order, priorities = self._who_goes_first()
            lower = made.unchanged(order[: np.searchsorted(priorities, priority)])
            spares = self._spares_now().holdings(priority)
            soon = made.soon.given(spares.rows, spares.amounts)
            self._below = _Below(key, lower, made.holders.less(spares), soon)
        return self._below

    def _spares_now(self) -> Spares:
        made = self._made
        if self._spares is None:
            self._spares = made.spares()
        self._spares.forget(made.changed)
        return self._spares

    def _who_goes_first(self) -> tuple[Amounts, Amounts]:
        """By number, the least urgent, of these the youngest: it loses least; and their priorities. They come by name,
        and sorting keeps equals as they are.
        """
        if self._order is None:
            priorities = np.array([gang.priority for gang in self._made.snapshot.running], np.int64)
            order = np.lexsort((-self._made.admitted, priorities))
            self._order = order, priorities[order]
        return self._order
