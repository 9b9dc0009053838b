"""Whether there would be as much as a gang needs if some others gave back what they hold.

It is asked a hundred times to find out who has to: only the nodes on which something would be given back are looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tarragon.scheduling.api.snapshot import Demand
from tarragon.scheduling.state.ledger import Ledger
from tarragon.scheduling.state.node_requests import Amounts, Ask, Mask


@dataclass(frozen=True, slots=True, eq=False)
class Holdings:
    """What some hold, or could give back: a row for each piece, as there may be thousands."""

    number: int
    """Of the owners, who are told apart by numbers from 0 on."""
    owners: Amounts
    rows: Amounts
    """Of the nodes."""
    amounts: Amounts

    def of(self, owners: Sequence[int] | Amounts) -> Mask:
        """Which pieces are theirs."""
        chosen = np.zeros(self.number, np.bool_)
        chosen[owners] = True
        return chosen[self.owners]

    def some(self, pieces: Mask | Amounts) -> Holdings:
        return Holdings(self.number, self.owners[pieces], self.rows[pieces], self.amounts[pieces])

    def less(self, others: Holdings) -> Holdings:
        """What is left of it without what these same owners have given back."""
        return Holdings(
            self.number,
            np.concatenate([self.owners, others.owners]),
            np.concatenate([self.rows, others.rows]),
            np.concatenate([self.amounts, -others.amounts]),
        )

    def without(self, owners: Sequence[int] | Amounts, ledger: Ledger) -> Ledger:
        """The ledger as it would be if these had given back what they hold."""
        pieces = self.of(owners)
        return ledger.given(self.rows[pieces], self.amounts[pieces])


@dataclass(frozen=True, slots=True)
class _Wanted:
    ask: Ask
    count: int
    near: Mask
    """Where it may run, of the rows that are looked at."""
    rows: Amounts
    """The same by number."""
    elsewhere: int
    """For so many there is room on all others."""


@dataclass(frozen=True, slots=True, eq=False)
class _Lacking:
    """A demand beside what there is for it before anybody gives anything back."""

    ask: Ask
    count: int
    room: Amounts
    there: int

    @classmethod
    def of(cls, demand: Demand, ledger: Ledger) -> _Lacking:
        room = np.minimum(ledger.room(demand), demand.minimum)
        return cls(ledger.nodes.ask(demand), demand.minimum, room, int(room.sum()))

    def on(self, rows: Amounts) -> _Wanted:
        near = self.ask.mask[rows]
        return _Wanted(self.ask, self.count, near, np.flatnonzero(near), self.there - int(self.room[rows].sum()))


class Trial:
    """For these demands, on a ledger that does not change meanwhile. Nobody gives back less than nothing of a node, so
    that only those demands are looked at for which there is too little yet.
    """

    def __init__(self, demands: Sequence[Demand], ledger: Ledger, holdings: Holdings) -> None:
        self._ledger = ledger
        lacking = [_Lacking.of(demand, ledger) for demand in demands if demand.minimum]
        lacking = sorted((each for each in lacking if each.there < each.count), key=lambda each: -each.ask.weight)
        near = np.zeros(len(ledger.nodes), np.bool_)
        for each in lacking:
            near |= each.ask.mask
        self._held = holdings.some(near[holdings.rows])
        looked_at = np.zeros(len(near), np.bool_)
        looked_at[self._held.rows] = True
        self._rows = rows = np.flatnonzero(looked_at)
        self._places = (np.cumsum(looked_at) - 1)[self._held.rows]
        columns = sorted({column for each in lacking for column, _ in each.ask.columns})
        self._columns = [(column, ledger.table[rows, column], self._held.amounts[:, column]) for column in columns]
        self._wanted = [each.on(rows) for each in lacking]
        """The scarcest first: that is where it fails."""

    def seems(self, owners: Sequence[int] | Amounts) -> bool:
        """Whether each demand for itself would have room for its minimum if these gave back what they hold."""
        return self._suffices(self._with(np.flatnonzero(self._held.of(owners))))

    def beginning(self, owners: Amounts) -> int | None:
        """How many of these it takes for that, the first ones; None if all are too few."""
        pieces = np.flatnonzero(self._held.of(owners))
        free = self._with(pieces)
        return self._in_turn(owners, self._gaining(pieces, free)).beginning() if self._suffices(free) else None

    def needed(self, owners: Amounts) -> list[int]:
        """Without those of them that it does not take, the last ones first; together they are enough.

        Only on few nodes is there room for more than before: who holds nothing there can be left out, and what the
        others hold is counted with plain numbers.
        """
        pieces = np.flatnonzero(self._held.of(owners))
        free = self._with(pieces)
        back = _GivenBack(self._wanted, [_room(each, free) + each.elsewhere - each.count for each in self._wanted])
        back.add(self._held.some(self._gaining(pieces, free)), self._ledger)
        return [owner for owner in owners[::-1].tolist() if back.is_needed(owner)][::-1]

    def _with(self, pieces: Amounts) -> dict[int, Amounts]:
        """By column what is free at each place if these are given back."""
        places = self._places[pieces]
        free: dict[int, Amounts] = {}
        for column, there, amounts in self._columns:
            free[column] = there.copy()
            np.add.at(free[column], places, amounts[pieces])
        return free

    def _suffices(self, free: Mapping[int, Amounts]) -> bool:
        return all(_room(each, free) + each.elsewhere >= each.count for each in self._wanted)

    def _gaining(self, pieces: Amounts, free: Mapping[int, Amounts]) -> Amounts:
        """Those of the pieces at places where there is room for more with so much free than before."""
        before = {column: there for column, there, _ in self._columns}
        gains = np.zeros(len(self._rows), np.bool_)
        for each in self._wanted:
            gains |= each.near & (_times(each, free) > _times(each, before))
        gaining: Amounts = pieces[gains[self._places[pieces]]]
        return gaining

    def _in_turn(self, owners: Amounts, pieces: Amounts) -> _InTurn:
        turn_of = np.zeros(self._held.number, np.int64)
        turn_of[owners] = np.arange(len(owners))
        turns = turn_of[self._held.owners[pieces]]
        order = np.argsort(self._places[pieces] * len(owners) + turns, kind="stable")
        pieces = pieces[order]
        columns = {column: (there, amounts[pieces]) for column, there, amounts in self._columns}
        return _InTurn(self._wanted, turns[order], self._places[pieces], columns, len(owners))


@dataclass(slots=True)
class _GivenBack:
    """What is free if all give back, and for how many there is room then beyond what is wanted."""

    _wanted: Sequence[_Wanted]
    _beyond: list[int]
    """By demand."""
    _free: dict[int, list[int]] = field(default_factory=dict)
    """By row and column."""
    _held: dict[int, dict[int, list[int]]] = field(default_factory=dict)
    """By owner, row and column."""

    def add(self, held: Holdings, ledger: Ledger) -> None:
        pieces = zip(held.owners.tolist(), held.rows.tolist(), held.amounts.tolist(), strict=True)
        for owner, row, amounts in pieces:
            rows = self._held.setdefault(owner, {})
            rows[row] = _plus(rows[row], amounts) if row in rows else amounts
            self._free[row] = _plus(self._free.get(row) or ledger.table[row].tolist(), amounts)

    def is_needed(self, owner: int) -> bool:
        """If not, because the others are enough, it keeps what it holds."""
        held = self._held.get(owner)
        if held is None:
            return False
        free = {row: _plus(self._free[row], [-amount for amount in amounts]) for row, amounts in held.items()}
        beyond = [
            room - sum(_times_on(row, self._free[row], each) - _times_on(row, free[row], each) for row in free)
            for each, room in zip(self._wanted, self._beyond, strict=True)
        ]
        if any(room < 0 for room in beyond):
            return True
        self._free.update(free)
        self._beyond = beyond
        return False


def _plus(some: Sequence[int], more: Sequence[int]) -> list[int]:
    return [here + there for here, there in zip(some, more, strict=True)]


def _times_on(row: int, free: Sequence[int], wanted: _Wanted) -> int:
    return min(wanted.count, wanted.ask.times(free)) if wanted.ask.mask[row] else 0


@dataclass(frozen=True, slots=True)
class _InTurn:
    """Owners who give back one after the other: what there is after each of them is summed up at once, for all."""

    _wanted: Sequence[_Wanted]
    _turns: Amounts
    """By piece, whose turn it is. The pieces are sorted by place, and those of one place by turn."""
    _places: Amounts
    _columns: dict[int, tuple[Amounts, Amounts]]
    """What is free at each place, and what each piece gives to it."""
    _number: int
    """Of the owners."""

    def beginning(self) -> int | None:
        """The least number of turns after which each demand has room; None if all of them are too few."""
        begins = np.ones(len(self._places), np.bool_)
        begins[1:] = self._places[1:] != self._places[:-1]
        first = np.flatnonzero(begins)
        lengths = np.diff(np.append(first, len(begins)))
        before: dict[int, Amounts] = {}
        after: dict[int, Amounts] = {}
        for column, (there, amounts) in self._columns.items():
            sums = np.cumsum(amounts)
            before[column] = there
            after[column] = sums - np.repeat((sums - amounts)[first] - there[self._places[first]], lengths)
        least = 0
        for wanted in self._wanted:
            lacking = wanted.count - wanted.elsewhere - _room(wanted, before)
            if lacking > 0:
                gained = np.cumsum(self._gains(wanted, before, after, first))
                if not len(gained) or gained[-1] < lacking:
                    return None
                least = max(least, int(np.argmax(gained >= lacking)) + 1)
        return least

    def _gains(
        self, wanted: _Wanted, before: Mapping[int, Amounts], after: Mapping[int, Amounts], first: Amounts
    ) -> Amounts:
        """By turn, for how many more there is room."""
        room = _times(wanted, after)
        gains = room.copy()
        gains[1:] -= room[:-1]
        begun = self._places[first]
        gains[first] = room[first] - _times(wanted, {column: there[begun] for column, there in before.items()})
        gains[~wanted.near[self._places]] = 0
        gained: Amounts = np.bincount(self._turns, gains, self._number).astype(np.int64)
        return gained


def _room(wanted: _Wanted, free: Mapping[int, Amounts]) -> int:
    """On the nodes that are looked at."""
    ask = wanted.ask
    if not ask.possible or not ask.columns:
        return wanted.count * len(wanted.rows) if ask.possible else 0
    return int(_times(wanted, {column: free[column][wanted.rows] for column, _ in ask.columns}).sum())


def _times(wanted: _Wanted, free: Mapping[int, Amounts]) -> Amounts:
    """How often it goes into each of these, and no more often than it is wanted."""
    (column, amount), *others = wanted.ask.columns
    times: Amounts = free[column] // amount
    for column, amount in others:
        np.minimum(times, free[column] // amount, out=times)
    return times.clip(0, wanted.count)
