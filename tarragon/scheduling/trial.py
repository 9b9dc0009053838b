"""Whether there would be as much as a gang needs if some others gave back what they hold.

It is asked a hundred times to find out who has to: only the nodes on which something would be given back are looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    mask: Mask
    """Of the nodes that are looked at."""
    elsewhere: int
    """For so many there is room on others."""


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
        self._free = ledger.table[rows]
        self._columns = sorted({column for ask in asks for column, _ in ask.columns})
        self._wanted = [_wanted(demand, ledger, rows) for demand in demands]

    def narrowed(self, owners: Sequence[int]) -> Trial:
        """Where the others give nothing."""
        return Trial(self._demands, self._ledger, self._held.some(self._held.of(owners)))

    def seems(self, owners: Sequence[int] | Amounts) -> bool:
        """Whether each demand for itself would have room for its minimum if these gave back what they hold."""
        pieces = self._held.of(owners)
        places, amounts = self._places[pieces], self._held.amounts[pieces]
        free = self._free.copy(order="F")
        for column in self._columns:
            np.add.at(free[:, column], places, amounts[:, column])
        return all(
            int(np.minimum(each.ask.room(free, each.mask), each.count).sum()) + each.elsewhere >= each.count
            for each in self._wanted
        )


def _wanted(demand: Demand, ledger: Ledger, rows: Amounts) -> _Wanted:
    ask, count = ledger.nodes.ask(demand), demand.minimum
    room = np.minimum(ledger.room(demand), count)
    return _Wanted(ask, count, ask.mask[rows], int(room.sum()) - int(room[rows].sum()))
