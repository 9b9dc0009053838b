"""Whether there would be as much as a gang needs if some others gave back what they hold.

It is asked a hundred times to find out who has to: only the nodes on which something would be given back are looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tarragon.scheduling.asks import Amounts, Ask, Mask
from tarragon.scheduling.ledger import Ledger
from tarragon.scheduling.snapshot import Demand


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

    def some(self, pieces: Mask) -> Holdings:
        return Holdings(self.number, self.owners[pieces], self.rows[pieces], self.amounts[pieces])

    def less(self, others: Holdings) -> Holdings:
        """What is left of it without what these same owners have given back."""
        return Holdings(
            self.number,
            np.concatenate([self.owners, others.owners]),
            np.concatenate([self.rows, others.rows]),
            np.concatenate([self.amounts, -others.amounts]),
        )

    def without(self, owners: Sequence[int], ledger: Ledger) -> Ledger:
        """The ledger as it would be if these had given back what they hold."""
        pieces = self.of(owners)
        return ledger.given(self.rows[pieces], self.amounts[pieces])


@dataclass(frozen=True, slots=True)
class _Wanted:
    ask: Ask
    count: int
    rows: Amounts
    """Among those that are looked at."""
    elsewhere: int
    """For so many there is room on all others."""


class Trial:
    """For these demands, on a ledger that does not change meanwhile."""

    def __init__(self, demands: Sequence[Demand], ledger: Ledger, holdings: Holdings) -> None:
        self._demands, self._ledger = demands, ledger
        asks = [ledger.nodes.ask(demand) for demand in demands if demand.minimum]
        near = np.zeros(len(ledger.nodes), np.bool_)
        for ask in asks:
            near |= ask.mask
        self._held = holdings.some(near[holdings.rows])
        looked_at = np.zeros(len(near), np.bool_)
        looked_at[self._held.rows] = True
        rows = np.flatnonzero(looked_at)
        self._places = (np.cumsum(looked_at) - 1)[self._held.rows]
        columns = sorted({column for ask in asks for column, _ in ask.columns})
        self._columns = [(column, ledger.table[rows, column], self._held.amounts[:, column]) for column in columns]
        wanted = [_wanted(demand, ledger, rows) for demand in demands if demand.minimum]
        self._wanted = sorted(wanted, key=lambda each: -each.ask.weight)
        """The scarcest first: that is where it fails."""

    def narrowed(self, owners: Sequence[int]) -> Trial:
        """Where the others give nothing."""
        return Trial(self._demands, self._ledger, self._held.some(self._held.of(owners)))

    def seems(self, owners: Sequence[int] | Amounts) -> bool:
        """Whether each demand for itself would have room for its minimum if these gave back what they hold."""
        pieces = np.flatnonzero(self._held.of(owners))
        places = self._places[pieces]
        free: dict[int, Amounts] = {}
        for column, there, amounts in self._columns:
            free[column] = there.copy()
            np.add.at(free[column], places, amounts[pieces])
        return all(_room(each, free) + each.elsewhere >= each.count for each in self._wanted)


def _wanted(demand: Demand, ledger: Ledger, rows: Amounts) -> _Wanted:
    ask, count = ledger.nodes.ask(demand), demand.minimum
    room = np.minimum(ledger.room(demand), count)
    near = np.flatnonzero(ask.mask[rows])
    return _Wanted(ask, count, near, int(room.sum()) - int(room[rows].sum()))


def _room(wanted: _Wanted, free: Mapping[int, Amounts]) -> int:
    """On the nodes that are looked at."""
    ask, count = wanted.ask, wanted.count
    if not ask.possible or not ask.columns:
        return count * len(wanted.rows) if ask.possible else 0
    (column, amount), *others = ask.columns
    there: Amounts = free[column][wanted.rows] // amount
    for column, amount in others:
        np.minimum(there, free[column][wanted.rows] // amount, out=there)
    return int(there.clip(0, count).sum())
