"""What elastic gangs can do without, and which of it is given back so that another gang may start."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial

import numpy as np

from tarragon.job.model import Replica, ReplicaType
from tarragon.scheduling.api.cycle_memory import Loose
from tarragon.scheduling.api.snapshot import Demand, RunningGang
from tarragon.scheduling.cycle.preemption_simulation import Holdings, Trial
from tarragon.scheduling.cycle.victims import shortest
from tarragon.scheduling.placement.fit import could_fit, place
from tarragon.scheduling.state.inventory import Inventory
from tarragon.scheduling.state.ledger import Ledger
from tarragon.scheduling.state.node_requests import Amounts, Mask

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


class Spares:
    """All that could be given back, in a fair order: of the least urgent first, then of whoever has most above its
    minimum, then of whoever has the largest part of its maximum, then of the youngest, then by name. The gangs come
    by name.
    """

    def __init__(self, gangs: Sequence[RunningGang], nodes: Inventory) -> None:
        self._gangs = list(gangs)
        told = [nodes.loose.of(gang, lambda gang: _loose(gang, nodes)) for gang in gangs]
        able = [(number, loose) for number, loose in enumerate(told) if loose is not None]
        order = np.concatenate([np.zeros((0, 4)), *(loose.order for _, loose in able)])
        rows = np.concatenate([np.zeros(0, np.int64), *(loose.rows for _, loose in able)])
        freed = np.concatenate([np.zeros((0, len(nodes.resources)), np.int64), *(loose.freed for _, loose in able)])
        owners = np.repeat([number for number, _ in able], [len(loose.rows) for _, loose in able]).astype(np.int64)
        self._replicas = [replica for _, loose in able for replica in loose.replicas]
        self._number_of = {gangs[number].name: number for number, _ in able}
        # Sorting keeps equals as they are: by gang, and in their turn.
        self._units = np.lexsort(order.T[::-1])
        """The place of each among the replicas."""
        self._rows, self._freed, self._owners = rows[self._units], freed[self._units], owners[self._units]
        self._priorities = order[self._units, 0]
        self._together: Amounts | None = None
        """By row and column, what all of it is: until some of it is gone."""

    def copy(self) -> Spares:
        """What one of them gives up, the other does not know of. The tables are never changed, only replaced."""
        made: Spares = copy(self)
        made._gangs, made._number_of = self._gangs.copy(), self._number_of.copy()
        return made

    def given_up(self, demands: Sequence[Demand], ledger: Ledger, below: int | None = None) -> list[Smaller] | None:
        """Who goes on with what, for these demands to fit the ledger: no more is taken than it needs, and from none
        of this priority or a higher one. None when all of it together is too little.
        """
        if self._is_too_little(demands, ledger):
            return None
        useful = self._useful(demands, ledger, below)
        if not len(useful):
            return None
        needed = self._enough(useful, demands, ledger)
        if needed is None:
            return None
        if len(needed) <= _WEIGHED:
            needed = self._weighed(needed, demands, ledger)
        return self._taken(needed)

    def all_of_it(self, ledger: Ledger) -> Ledger:
        """The ledger as it would be if all were given back: nearly all that wait are told that this is too little."""
        most, questions = self._without(np.arange(len(self._units)), ledger), ledger.nodes.questions
        questions.with_spares = most.told(questions.with_spares)
        return most

    def holdings(self, below: int) -> Holdings:
        """Of all of lower priority, by their numbers."""
        those = self._priorities < below
        return Holdings(len(self._gangs), self._owners[those], self._rows[those], self._freed[those])

    def forget(self, names: Collection[str]) -> None:
        """These give back all that they have, or are changed by others."""
        gone = [self._number_of.pop(name) for name in names if name in self._number_of]
        if gone:
            self._keep(~np.isin(self._owners, gone))

    def _keep(self, those: Mask) -> None:
        self._units, self._owners = self._units[those], self._owners[those]
        self._rows, self._priorities, self._freed = self._rows[those], self._priorities[those], self._freed[those]
        self._together = None

    def _is_too_little(self, demands: Sequence[Demand], ledger: Ledger) -> bool:
        """All of it, for one of these: the quick answer to most that ask."""
        if self._together is None:
            self._together = np.zeros_like(ledger.table)
            for column in range(self._together.shape[1]):
                np.add.at(self._together[:, column], self._rows, self._freed[:, column])
        free = ledger.table + self._together
        asked = [(ledger.nodes.ask(demand), demand.minimum) for demand in demands if demand.minimum]
        asked.sort(key=lambda each: -each[0].weight)
        return any(int(ask.room(free, ask.mask).clip(max=count).sum()) < count for ask, count in asked)

    def _useful(self, demands: Sequence[Demand], ledger: Ledger, below: int | None) -> Amounts:
        """Those on nodes that take any of these, and that hold any of what is asked."""
        useful = np.zeros(len(self._units), np.bool_)
        if not len(useful):
            return np.flatnonzero(useful)
        for ask in [ledger.nodes.ask(demand) for demand in demands if demand.minimum]:
            useful |= ask.mask[self._rows] & (self._freed[:, ask.row > 0] > 0).any(axis=1)
        return np.flatnonzero(useful if below is None else useful & (self._priorities < below))

    def _without(self, units: Amounts, ledger: Ledger) -> Ledger:
        return ledger.given(self._rows[units], self._freed[units])

    def _trial(self, units: Amounts, demands: Sequence[Demand], ledger: Ledger) -> Trial:
        """Of these, by their places among them."""
        number = len(units)
        return Trial(demands, ledger, Holdings(number, np.arange(number), self._rows[units], self._freed[units]))

    def _suffice(self, units: Amounts, demands: Sequence[Demand], ledger: Ledger) -> bool:
        return could_fit(demands, self._without(units, ledger))

    def _enough(self, units: Amounts, demands: Sequence[Demand], ledger: Ledger) -> Amounts | None:
        """Of the shortest beginning that suffices. What does not even seem to suffice does not."""
        least = self._trial(units, demands, ledger).beginning(np.arange(len(units)))
        if least is None:
            return None
        least = max(1, least)
        enough = self._on_its_nodes(units[:least], demands, ledger)
        if enough is not None:
            return enough
        if not self._suffice(units, demands, ledger):
            return None
        size = shortest(units, least + 1, partial(self._suffice, demands=demands, ledger=ledger))
        return self._on_its_nodes(units[:size], demands, ledger)

    def _on_its_nodes(self, units: Amounts, demands: Sequence[Demand], ledger: Ledger) -> Amounts | None:
        """Those without which one of the nodes that the demands would get had too little; None if they get none."""
        free = self._without(units, ledger)
        before = free.table.copy(order="K")
        if place(demands, free) is None:
            return None
        kept: list[int] = []
        for row in (before != free.table).any(axis=1).nonzero()[0]:
            asked = before[row] - free.table[row]
            lacking = np.where(asked > 0, asked - ledger.table[row], 0)
            if (lacking > 0).any():
                here = units[self._rows[units] == row]
                kept += [int(here[position]) for position in _covering(self._freed[here], lacking)]
        return np.array(sorted(kept), np.int64)

    def _weighed(self, units: Amounts, demands: Sequence[Demand], ledger: Ledger) -> Amounts:
        """Without those that are not needed, the last ones of the order first."""
        trial, left = self._trial(units, demands, ledger), np.arange(len(units))
        for at in left[::-1]:
            others = left[left != at]
            if len(others) and trial.seems(others) and self._suffice(units[others], demands, ledger):
                left = others
        return units[left]

    def _taken(self, units: Amounts) -> list[Smaller]:
        """From now on they are not there any more."""
        gone: dict[int, set[Replica]] = {}
        for unit in units:
            gone.setdefault(int(self._owners[unit]), set()).add(self._replicas[self._units[unit]])
        left = np.ones(len(self._units), np.bool_)
        left[units] = False
        self._keep(left)
        found: list[Smaller] = []
        for number, replicas in sorted(gone.items()):
            gang = self._gangs[number]
            kept = {replica: node for replica, node in gang.nodes.items() if replica not in replicas}
            self._gangs[number] = replace(gang, nodes=kept)
            found.append((gang, kept))
        return found


def _loose(gang: RunningGang, nodes: Inventory) -> Loose | None:
    """None where it gives nothing."""
    replicas = spare(gang)
    there = [turn for turn, replica in enumerate(replicas) if gang.nodes[replica] in nodes.row_of]
    if not there:
        return None
    each = {demand.type: nodes.ask(demand).row for demand in gang.demands}
    most = sum(max(demand.maximum, demand.wish) for demand in gang.demands)
    age = -(gang.admitted or _LONG_AGO).timestamp()
    size, left = len(gang.nodes), len(replicas)
    return Loose(
        [replicas[turn] for turn in there],
        np.array([nodes.row_of[gang.nodes[replicas[turn]]] for turn in there], np.int64),
        np.array([each[replicas[turn].type] for turn in there], np.int64),
        np.array([(gang.priority, turn - left, (turn - size) / most, age) for turn in there], np.float64),
    )


def _covering(freed: Amounts, lacking: Amounts) -> list[int]:
    """The first rows whose sum covers what is lacking, without those that are not needed."""
    chosen, beyond = list(range(len(freed))), freed.sum(axis=0) - lacking
    for position in reversed(range(len(freed))):
        if (beyond >= freed[position]).all():
            beyond = beyond - freed[position]
            chosen.remove(position)
    return chosen
