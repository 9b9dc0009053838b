"""What elastic gangs can do without, and which of it is given back so that another gang may start."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from tarragon.job.model import Replica, ReplicaType
from tarragon.scheduling.fit import could_fit, place
from tarragon.scheduling.inventory import Amounts, Inventory, Mask
from tarragon.scheduling.ledger import Ledger
from tarragon.scheduling.needed import has_as_much
from tarragon.scheduling.snapshot import Demand, RunningGang

_WEIGHED = 8
"""Of so many replicas each is tried to be left out; of more, those that are on nodes that the gang does not get."""
_LONG_AGO = dt.datetime.min.replace(tzinfo=dt.UTC)
_DECIDES = frozenset({ReplicaType.CHIEF, ReplicaType.MASTER, ReplicaType.LAUNCHER})

Smaller = tuple[RunningGang, Mapping[Replica, str]]
"""A gang as it is, and what it goes on with."""


def lonely_last(gang: RunningGang, demand: Demand) -> list[Replica]:
    """Its replicas of this demand, those that are to go first at the end: lonely ones, of these the highest index.

    Lonely is who is on another node than all the parameter servers; the first of its kind stays in any case. A gang
    that is started again for each size has no gaps in its indexes: there the index alone counts.
    """
    servers = {node for replica, node in gang.nodes.items() if replica.type is ReplicaType.PS}
    told_apart = bool(servers) and not gang.whole
    found = [
        (told_apart and replica.index > 0 and node not in servers, replica.index, replica)
        for replica, node in gang.nodes.items()
        if replica.type is demand.type
    ]
    return [replica for _, _, replica in sorted(found)]


def spare(gang: RunningGang) -> list[Replica]:
    """Those that it can do without, the first to go first: never below the minimum, and never who decides the job.

    Whoever has finished, or has lost its node, holds nothing that others could use. A gang that is started again for
    each size gives nothing: that would cost it more than others gain.
    """
    if gang.whole or len(gang.nodes) <= sum(demand.minimum for demand in gang.demands):
        return []
    found: list[Replica] = []
    for demand in gang.demands:
        if demand.type not in _DECIDES:
            away = gang.finished | gang.homeless
            there = [replica for replica in lonely_last(gang, demand) if replica not in away]
            loose = [replica for replica in reversed(there) if replica.index > 0]
            found += loose[: max(0, len(there) - demand.minimum)]
    return found


_Unit = tuple[int, int, float, float, str, int, int, int, Replica]
"""What decides about the order (priority, less above its minimum, less of its maximum, age, name, turn), then the
number of the gang, the row of the node, and the replica that may be given back."""


class Spares:
    """All that could be given back, in a fair order: of the least urgent first, then of whoever has most above its
    minimum, then of whoever has the largest part of its maximum, then of the youngest.
    """

    def __init__(self, gangs: Sequence[RunningGang], nodes: Inventory) -> None:
        self._gangs = list(gangs)
        self._kinds: dict[int, dict[ReplicaType, int]] = {}
        self._each: list[Amounts] = []
        self._all = sorted(unit for number, gang in enumerate(gangs) for unit in self._units(number, gang, nodes))
        self._names = {unit[4] for unit in self._all}
        self._rows = np.array([unit[7] for unit in self._all], np.int64)
        self._priorities = np.array([unit[0] for unit in self._all], np.int64)
        kinds = np.array([self._kinds[number][replica.type] for *_, number, _, replica in self._all], np.int64)
        self._freed = np.array(self._each, np.int64).reshape(len(self._each), len(nodes.resources))[kinds]

    def given_up(self, demands: Sequence[Demand], ledger: Ledger, below: int | None = None) -> list[Smaller] | None:
        """Who goes on with what, for these demands to fit the ledger: no more is taken than it needs, and from none
        of this priority or a higher one. None when all of it together is too little.
        """
        useful = self._useful(demands, ledger, below)
        if not len(useful) or not self._seem(useful, demands, ledger):
            return None
        enough = self._beginning(useful, demands, ledger)
        if enough is None:
            return None
        needed = self._on_its_nodes(enough, demands, ledger)
        if len(needed) <= _WEIGHED:
            needed = self._weighed(needed, demands, ledger)
        return self._taken(needed)

    def all_of_it(self, ledger: Ledger) -> Ledger:
        """The ledger as it would be if all were given back."""
        return self._without(np.arange(len(self._all)), ledger)

    def forget(self, names: Collection[str]) -> None:
        """These give back all that they have, or are changed by others."""
        if self._names.isdisjoint(names):
            return
        self._names.difference_update(names)
        self._keep(np.array([unit[4] in self._names for unit in self._all], np.bool_))

    def _keep(self, those: Mask) -> None:
        self._all = [unit for unit, stays in zip(self._all, those.tolist(), strict=True) if stays]
        self._rows, self._priorities, self._freed = self._rows[those], self._priorities[those], self._freed[those]

    def _units(self, number: int, gang: RunningGang, nodes: Inventory) -> Iterator[_Unit]:
        replicas = spare(gang)
        if not replicas:
            return
        self._kinds[number] = {demand.type: len(self._each) + place for place, demand in enumerate(gang.demands)}
        self._each += [nodes.ask(demand).row for demand in gang.demands]
        most = sum(max(demand.maximum, demand.wish) for demand in gang.demands)
        admitted = (gang.admitted or _LONG_AGO).timestamp()
        size, left = len(gang.nodes), len(replicas)
        for turn, replica in enumerate(replicas):
            row = nodes.row_of.get(gang.nodes[replica])
            if row is not None:
                yield gang.priority, turn - left, (turn - size) / most, -admitted, gang.name, turn, number, row, replica

    def _useful(self, demands: Sequence[Demand], ledger: Ledger, below: int | None) -> Amounts:
        """Those on nodes that take any of these, and that hold any of what is asked."""
        useful = np.zeros(len(self._all), np.bool_)
        if not self._all:
            return np.flatnonzero(useful)
        for ask in [ledger.nodes.ask(demand) for demand in demands if demand.minimum]:
            useful |= ask.mask[self._rows] & (self._freed[:, ask.row > 0] > 0).any(axis=1)
        return np.flatnonzero(useful if below is None else useful & (self._priorities < below))

    def _without(self, units: Amounts, ledger: Ledger) -> Ledger:
        return ledger.given(self._rows[units], self._freed[units])

    def _seem(self, units: Amounts, demands: Sequence[Demand], ledger: Ledger) -> bool:
        """What does not even seem to suffice does not."""
        return has_as_much(demands, self._without(units, ledger))

    def _suffice(self, units: Amounts, demands: Sequence[Demand], ledger: Ledger) -> bool:
        return could_fit(demands, self._without(units, ledger))

    def _beginning(self, units: Amounts, demands: Sequence[Demand], ledger: Ledger) -> Amounts | None:
        """The shortest one that suffices."""
        least = self._shortest(units, 1, partial(self._seem, demands=demands, ledger=ledger))
        if self._suffice(units[:least], demands, ledger):
            return units[:least]
        if not self._suffice(units, demands, ledger):
            return None
        return units[: self._shortest(units, least + 1, partial(self._suffice, demands=demands, ledger=ledger))]

    def _shortest(self, units: Amounts, least: int, is_enough: Callable[[Amounts], bool]) -> int:
        """Of the beginnings with at least so many, the longest of which is enough."""
        too_few, enough = least - 1, len(units)
        while enough - too_few > 1:
            middle = (enough + too_few) // 2
            if is_enough(units[:middle]):
                enough = middle
            else:
                too_few = middle
        return enough

    def _on_its_nodes(self, units: Amounts, demands: Sequence[Demand], ledger: Ledger) -> Amounts:
        """Those without which one of the nodes that the demands would get had too little."""
        free = self._without(units, ledger)
        before = free.table.copy()
        if place(demands, free) is None:
            return units
        asked = before - free.table
        lacking = np.where(asked > 0, asked - ledger.table, 0)
        kept: list[int] = []
        for row in np.flatnonzero((lacking > 0).any(axis=1)):
            here = units[self._rows[units] == row]
            kept += [int(here[position]) for position in _covering(self._freed[here], lacking[row])]
        return np.array(sorted(kept), np.int64)

    def _weighed(self, units: Amounts, demands: Sequence[Demand], ledger: Ledger) -> Amounts:
        """Without those that are not needed, the last ones of the order first."""
        for unit in units[::-1]:
            others = units[units != unit]
            if len(others) and self._seem(others, demands, ledger) and self._suffice(others, demands, ledger):
                units = others
        return units

    def _taken(self, units: Amounts) -> list[Smaller]:
        """From now on they are not there any more."""
        gone: dict[int, set[Replica]] = {}
        for unit in units:
            *_, number, _, replica = self._all[unit]
            gone.setdefault(number, set()).add(replica)
        left = np.ones(len(self._all), np.bool_)
        left[units] = False
        self._keep(left)
        found: list[Smaller] = []
        for number, replicas in sorted(gone.items()):
            gang = self._gangs[number]
            kept = {replica: node for replica, node in gang.nodes.items() if replica not in replicas}
            self._gangs[number] = replace(gang, nodes=kept)
            found.append((gang, kept))
        return found


def _covering(freed: Amounts, lacking: Amounts) -> list[int]:
    """The first rows whose sum covers what is lacking, without those that are not needed."""
    chosen = list(range(len(freed)))
    for position in reversed(range(len(freed))):
        others = [other for other in chosen if other != position]
        if (freed[others].sum(axis=0) >= lacking).all():
            chosen = others
    return chosen
