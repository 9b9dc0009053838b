"""Gangs whose replicas have to lie over domains in a certain way: one replica after the other, each where it may go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from tarragon.job.model import ReplicaType
from tarragon.scheduling.api.snapshot import Demand, Spread
from tarragon.scheduling.placement.node_choice import nearest, tightest
from tarragon.scheduling.placement.packing import Packing, has_as_much, has_room, pack, wants_of
from tarragon.scheduling.state.inventory import Inventory
from tarragon.scheduling.state.ledger import Ledger
from tarragon.scheduling.state.node_requests import Amounts

_TRIES = 16
"""So many domains are tried for a gang that has to be in one."""


class Lay:
    """How many count in each domain of a spread: others' pods, and those replicas of the gang that have a place."""

    def __init__(self, spread: Spread, nodes: Inventory) -> None:
        self._spread = spread
        self._of, names = nodes.sites(spread.domains)
        self._counts = np.array([spread.already.get(name, 0) for name in names], np.int64)
        self._own = np.zeros(len(names), np.int64)

    def add(self, kind: ReplicaType, row: int) -> None:
        domain = self._of[row]
        if kind in self._spread.counted and domain >= 0:
            self._counts[domain] += 1
            self._own[domain] += 1

    def more(self, kind: ReplicaType) -> Amounts:
        """How many more the domain of each row may get before others do."""
        spread = self._spread
        counts = kind in spread.counted
        more = np.full(len(self._counts) + 1, np.iinfo(np.int64).max)
        more[-1] = 0
        for limit in self._limits():
            left = limit - self._counts
            np.minimum(more[:-1], left if counts else np.where(left >= 0, more[:-1], 0), out=more[:-1])
        if spread.together and self._own.any():
            more[:-1][self._own == 0] = 0
        return more[self._of]

    def _limits(self) -> Iterator[int]:
        if self._spread.most is not None:
            yield self._spread.most
        if self._spread.skew is not None:
            yield self._spread.skew + int(self._counts.min(initial=np.iinfo(np.int32).max))


class Walk:
    """A gang of which replica after replica gets a place. What is given is taken from the ledger."""

    def __init__(self, demands: Sequence[Demand], ledger: Ledger) -> None:
        self._ledger = ledger
        self._lays = {spread: Lay(spread, ledger.nodes) for demand in demands for spread in demand.spreads}
        self._opened: list[int] = []

    def is_at(self, kind: ReplicaType, row: int) -> None:
        """One of the gang has this place already."""
        for lay in self._lays.values():
            lay.add(kind, row)
        if row not in self._opened:
            self._opened.append(row)

    def give(self, demand: Demand, wished: int) -> list[int]:
        """A row for each of so many replicas; fewer when there is no more room."""
        rows: list[int] = []
        while len(rows) < wished and (row := self._next(demand, wished - len(rows))) is not None:
            self._ledger.take_row(row, self._ledger.nodes.ask(demand).row)
            self.is_at(demand.type, row)
            rows.append(row)
        return rows

    def _next(self, demand: Demand, wished: int) -> int | None:
        room = np.minimum(self._ledger.room(demand), wished)
        for spread in demand.spreads:
            room = np.minimum(room, self._lays[spread].more(demand.type))
        opened = next((row for row in self._opened if room[row] > 0), None)
        return self._new(demand, room) if opened is None else opened

    def _new(self, demand: Demand, room: Amounts) -> int | None:
        """The one that takes most of those that are left; the best liked, the nearest, the one with least left over."""
        most = int(room.max(initial=0))
        if most <= 0:
            return None
        rows = np.flatnonzero(room == most)
        if demand.preference:
            liking = self._ledger.nodes.liking(demand)
            rows = rows[liking[rows] == liking[rows].max()]
        return tightest(nearest(rows, self._ledger, self._opened), 1, self._ledger.roominess())[0]


def packed(demands: Sequence[Demand], counts: Sequence[int], ledger: Ledger) -> Packing | None:
    """As `pack`, with the rules on how replicas lie over domains."""
    if not any(demand.spreads for demand in demands):
        return pack(demands, counts, ledger)
    if not has_as_much(wants_of(demands, counts, ledger), ledger):
        return None
    bound = next((spread for demand in demands for spread in demand.spreads if spread.together), None)
    if bound is None:
        return _walked(demands, counts, ledger)
    for domain in _domains(bound, demands, counts, ledger):
        found = packed([_within(domain, bound, demand) for demand in demands], counts, ledger)
        if found is not None:
            return found
    return None


def holds(demands: Sequence[Demand], counts: Sequence[int], ledger: Ledger) -> bool:
    """Whether `packed` would find places."""
    if any(demand.spreads for demand in demands):
        return packed(demands, counts, ledger) is not None
    return has_room(demands, counts, ledger)


def _domains(bound: Spread, demands: Sequence[Demand], counts: Sequence[int], ledger: Ledger) -> list[str]:
    """Those with room for each demand that is bound; first the one with least room for all of them."""
    of, names = ledger.nodes.sites(bound.domains)
    is_able = np.ones(len(names), np.bool_)
    room = np.zeros(len(names), np.float64)
    for want in wants_of(demands, counts, ledger):
        if bound in want.demand.spreads:
            takes = np.minimum(ledger.room(want.demand), want.count)
            there = np.bincount(of[of >= 0], takes[of >= 0], len(names))
            is_able &= there >= want.count
            room += there * want.weight
    able = [int(domain) for domain in np.argsort(room, kind="stable") if is_able[domain]]
    return [names[domain] for domain in able[:_TRIES]]


def _within(domain: str, bound: Spread, demand: Demand) -> Demand:
    """It may run in this domain only, and the rule is kept."""
    if bound not in demand.spreads:
        return demand
    there = {name for name, its in bound.domains.items() if its == domain}
    others = tuple(spread for spread in demand.spreads if spread is not bound)
    return replace(demand, eligible=demand.eligible & there, spreads=others)


def _walked(demands: Sequence[Demand], counts: Sequence[int], ledger: Ledger) -> Packing | None:
    """The scarcest first, and if that does not work out, in the order in which they start."""
    scarcest = [want.place for want in wants_of(demands, counts, ledger)]
    for order in dict.fromkeys([tuple(scarcest), tuple(sorted(scarcest))]):
        walk = Walk(demands, ledger.copy())
        packing: Packing = {}
        for place in order:
            rows = walk.give(demands[place], counts[place])
            for row in rows:
                packing.setdefault(row, [0] * len(demands))[place] += 1
            if len(rows) < counts[place]:
                break
        else:
            return packing
    return None
