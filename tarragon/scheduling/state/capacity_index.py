"""For how many replicas there is room in all, told for everything that is asked for at once.

Nearly all that wait are told that there is too little, by this number alone. To count it costs a look at every node for
everything that is asked; from round to round few nodes change, and only these are looked at again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tarragon.scheduling.api.snapshot import Demand
from tarragon.scheduling.state.node_requests import Amounts, Ask

_ENOUGH = 2**40
"""More than anybody asks for; the sum of so much on all nodes is still a number."""
_MANY = 4
"""Where more than this part of the nodes has changed, all are looked at."""


@dataclass(slots=True)
class _Tables:
    """Many ask for the same amount of something, or of the same nodes."""

    most: Amounts
    """A row for each set of nodes: plenty on these, nothing elsewhere."""
    most_of: Amounts
    """By question, the row of its nodes."""
    amounts: Sequence[tuple[int, Amounts, Amounts, Amounts]]
    """A column, the amounts of it that are asked for, at least 1; plenty for those that are none; and by question,
    which of them it asks for.
    """


@dataclass(frozen=True, slots=True, eq=False)
class Told:
    """By question, how often there is room for it in all, on nodes that have so much free."""

    several: Sequence[Ask]
    free: Amounts
    totals: Amounts

    def by_question(self) -> dict[Ask, int]:
        """Those that were asked since are missing."""
        return dict(zip(self.several, self.totals.tolist(), strict=False))


class Questions:
    """All that was asked of the nodes of one cluster."""

    def __init__(self) -> None:
        self.several: list[Ask] = []
        self.of_demand: dict[int, tuple[Demand, Ask]] = {}
        """By which object it is."""
        self.latest: Told | None = None
        """Of what was free at the beginning of the last round."""
        self.with_spares: Told | None = None
        """The same with all that gangs could do without."""
        self._tables: _Tables | None = None

    def add(self, question: Ask) -> None:
        self.several.append(question)
        self._tables = None

    def clear(self) -> None:
        self.several, self._tables = [], None
        self.of_demand.clear()

    def told(self, free: Amounts, before: Told | None) -> Told:
        """From what was told before. The table must not be changed afterwards."""
        totals = np.zeros(0, np.int64)
        if before is not None and before.several is self.several:
            rows = np.flatnonzero((before.free != free).any(axis=1))
            if len(rows) * _MANY <= len(free):
                known = len(before.totals)
                totals = before.totals + self._more(rows, free[rows], before.free[rows])[:known]
        new = [_room(question, free) for question in self.several[len(totals) :]]
        return Told(self.several, free, np.concatenate([totals, np.array(new, np.int64)]))

    def _more(self, rows: Amounts, free: Amounts, before: Amounts) -> Amounts:
        """By question, for how many more there is room on these rows of the cluster, which had so much free before."""
        if not len(rows) or not self.several:
            return np.zeros(len(self.several), np.int64)
        if self._tables is None:
            self._tables = _tables(self.several)
        both = np.concatenate([free, before]).clip(min=0)
        room = self._tables.most[:, np.concatenate([rows, rows])][self._tables.most_of]
        for column, amounts, plenty, which in self._tables.amounts:
            there = both[:, column] // amounts
            there += plenty
            np.minimum(room, there[which] if len(there) > 1 else there, out=room)
        more: Amounts = room[:, : len(rows)].sum(axis=1) - room[:, len(rows) :].sum(axis=1)
        return more


def _tables(several: Sequence[Ask]) -> _Tables:
    nowhere = np.zeros_like(several[0].mask)
    masks = [question.mask if question.possible else nowhere for question in several]
    distinct = {id(mask): mask for mask in masks}
    numbers = {key: number for number, key in enumerate(distinct)}
    columns = np.array([question.row for question in several], np.int64).T
    uniques = [np.unique(column, return_inverse=True) for column in columns]
    return _Tables(
        np.where(np.array(list(distinct.values())), _ENOUGH, 0),
        np.array([numbers[id(mask)] for mask in masks], np.int64),
        [
            (column, np.maximum(amounts, 1)[:, None], np.where(amounts, 0, _ENOUGH)[:, None], which)
            for column, (amounts, which) in enumerate(uniques)
            if amounts.any()
        ],
    )


def _room(question: Ask, free: Amounts) -> int:
    return int(np.minimum(question.room(free, question.mask), _ENOUGH).sum())
