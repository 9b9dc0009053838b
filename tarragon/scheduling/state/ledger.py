"""What is free on every node while a policy thinks: taken and given back within one call, never outside of it.

Mutable on purpose: copying a thousand nodes for a thousand gangs took 327 ms, changing them in place 1.8 ms. What was
found out about all nodes is kept, and told anew for those that have changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from tarragon.base.resources import Resources
from tarragon.job.model import Replica
from tarragon.scheduling.api.snapshot import Demand, NodeState
from tarragon.scheduling.state.capacity_index import Told
from tarragon.scheduling.state.inventory import Inventory, Scores
from tarragon.scheduling.state.node_requests import Amounts, Ask, Mask

Column = TypeVar("Column", Amounts, Scores)

_ROUNDING = 1 + 1e-9
"""Sums of bytes over thousands of nodes need more than 63 bits; those of floats are this exact at least."""
_KEPT = 20_000
"""Shapes; jobs come and go for months, what they asked for must not stay."""


class Ledger:
    """Free amounts by node. `take` refuses what is not there, so a node can't be oversold by arithmetic."""

    def __init__(self, nodes: Inventory, amounts: Amounts) -> None:
        self.nodes = nodes
        self._free = amounts
        self._changes: list[int] = []
        self._rooms: dict[Ask, tuple[Amounts, int]] = {}
        self._scores: tuple[Scores, int] | None = None
        self._total: tuple[Resources, int] | None = None
        self._there: Scores | None = None
        self._sums: dict[int, tuple[Mask, Scores]] = {}
        self._wanted: dict[int, tuple[Resources, Amounts | None]] = {}
        self._open: dict[tuple[int, int], tuple[Mask, Amounts]] = {}
        self._told: Told | None = None
        self._told_at: int | None = None
        """How much had changed then. What it was told of may be another ledger, too."""
        self.refused: set[Hashable] = set()
        """Shapes that there was no room for. Taking does not change that, giving may."""
        self.welcome: set[Hashable] = set()
        """Shapes that a search has found room for: one that starts from other amounts may miss it, even from more."""

        self.at_most: dict[Ask, int] = {}
        """How many of it there is room for at most, where somebody asked for more, until something is given back."""

    @classmethod
    def of_free(cls, nodes: Iterable[NodeState]) -> Ledger:
        """What can be had now."""
        inventory = Inventory.of(nodes)
        ledger = cls(inventory, inventory.free.copy(order="K"))
        inventory.questions.latest = ledger.told(inventory.questions.latest)
        return ledger

    def told(self, before: Told | None) -> Told:
        """For all that is asked, as it will be: quicker from what was told in the round before of one like this."""
        told = self._told = self.nodes.questions.told(self._free.copy(order="K"), before)
        self.at_most, self._told_at = told.by_question(), len(self._changes)
        return told

    def soon(self) -> Ledger:
        """With what those hold besides who are leaving."""
        soon = Ledger(self.nodes, self._free + self.nodes.releasing)
        soon._told = self._told
        return soon

    @classmethod
    def of_capacity(cls, nodes: Iterable[NodeState]) -> Ledger:
        """What could be had if no gang ran. What is found out about that stays known from round to round."""
        inventory = Inventory.of(nodes)
        ledger = cls(inventory, inventory.capacity.copy(order="K"))
        for known in (inventory.never, inventory.ever):
            if len(known) > _KEPT:
                known.clear()
        ledger.refused, ledger.welcome = inventory.never, inventory.ever
        return ledger

    def __iter__(self) -> Iterator[str]:
        return iter(self.nodes.names)

    def given(self, rows: Amounts, amounts: Amounts) -> Ledger:
        """As it would be if these rows, of which each may be there several times, were given these amounts."""
        table = self._free.copy(order="K")
        for column in range(table.shape[1]):
            np.add.at(table[:, column], rows, amounts[:, column])
        return Ledger(self.nodes, table)

    def copy(self) -> Ledger:
        """What one of them takes, the other does not know of."""
        copy = Ledger(self.nodes, self._free.copy(order="K"))
        copy._changes, copy._rooms, copy._scores = self._changes.copy(), self._rooms.copy(), self._scores
        copy.refused, copy.welcome, copy.at_most = self.refused.copy(), self.welcome.copy(), self.at_most.copy()
        copy._told, copy._told_at = self._told, self._told_at
        return copy

    def free(self, node: str) -> Resources:
        return self.nodes.amounts(self._free[self.nodes.row_of[node]])

    @property
    def version(self) -> int:
        """Another one whenever something is taken or given."""
        return len(self._changes)

    @property
    def table(self) -> Amounts:
        """A row a node, a column a resource, as in `nodes`. For reading only."""
        return self._free

    def room(self, demand: Demand) -> Amounts:
        """How many more replicas of it each node takes, by row. For reading only; what the nodes lack, none takes."""
        ask = self.nodes.ask(demand)
        known = self._rooms.get(ask)
        if known is None:
            room = self._room(ask)
        elif known[1] == len(self._changes):
            return known[0]
        else:
            room = self._renewed(known, lambda rows: ask.room_of_few(self._free[rows], ask.mask[rows]))
        self._rooms[ask] = room, len(self._changes)
        return room

    def _room(self, ask: Ask) -> Amounts:
        if not ask.columns or not ask.possible:
            return ask.room(self._free, ask.mask)
        column = ask.columns[0][0]
        known = self._open.get((id(ask.mask), column))
        if known is None:
            rows = np.flatnonzero((self._free[:, column] > 0) & ask.mask)
            known = self._open[id(ask.mask), column] = ask.mask, rows
        return ask.room_among(self._free, known[1])

    def lacks(self, ask: Ask, count: int) -> bool:
        """Whether it is known that there is no room for so many. What was taken since then may not be counted."""
        most = self.at_most.get(ask)
        if most is None and self._told is not None:
            self._tell()
            most = self.at_most.get(ask)
        return most is not None and most < count

    def falls_short(self, ask: Ask, most: int) -> None:
        """It was found that there is room for no more: that was not known, so more is not known of what was taken."""
        self.at_most[ask] = most
        self._tell()

    def has_as_many(self, demand: Demand, count: int) -> bool:
        """Whether there is room for so many in all."""
        ask = self.nodes.ask(demand)
        if self.lacks(ask, count):
            return False
        self._tell()
        there = self.at_most.get(ask) if self._told is not None else None
        if there is None:
            there = int(np.minimum(self.room(demand), count).sum())
            if there < count:
                self.at_most[ask] = there
        return there >= count

    def _tell(self) -> None:
        """Of all that was asked of these nodes at once, how many there is room for now."""
        if self._told is not None and self._told_at != len(self._changes):
            self.told(self._told)

    def roominess(self) -> Scores:
        """How much each node has left for others, by row; see `Inventory.roominess`. For reading only."""
        if self._scores is None:
            scores = self.nodes.roominess(self._free)
        elif self._scores[1] == len(self._changes):
            return self._scores[0]
        else:
            scores = self._renewed(self._scores, lambda rows: self.nodes.roominess(self._free[rows]))
        self._scores = scores, len(self._changes)
        return scores

    def may_hold(self, amounts: Amounts, mask: Mask) -> bool:
        """Whether these rows had as much in all, whatever the pieces, when it was asked first: what is taken since then
        is not looked at, so that the answer to most of those who wait costs next to nothing. The mask is an `Ask`'s.
        """
        known = self._sums.get(id(mask))
        if known is None:
            if self._there is None:
                self._there = np.maximum(self._free, 0).astype(np.float64, order="F")
            known = self._sums[id(mask)] = mask, mask.astype(np.float64) @ self._there * _ROUNDING
        return bool((amounts <= known[1]).all())

    def total(self) -> Resources:
        """What is free in all."""
        if self._total is None or self._total[1] != len(self._changes):
            self._total = self.nodes.total(self._free.clip(min=0)), len(self._changes)
        return self._total[0]

    def fits(self, node: str, wanted: Resources) -> bool:
        row = self.nodes.row_of.get(node)
        needed = self._row(wanted)
        if row is None or needed is None:
            return False
        asked = needed > 0
        return bool((self._free[row, asked] >= needed[asked]).all())

    def take(self, node: str, wanted: Resources) -> None:
        """Raises ValueError when it does not fit: the caller has not asked `fits`."""
        needed = self._row(wanted)
        if needed is None or not self.fits(node, wanted):
            raise ValueError(f"node {node} has no room for {dict(wanted)}")
        self.take_row(self.nodes.row_of[node], needed)

    def take_row(self, row: int, amounts: Amounts) -> None:
        """As `take`, by column."""
        self.take_rows([row], amounts[np.newaxis])

    def take_rows(self, rows: Sequence[int], amounts: Amounts) -> None:
        """The same for several, of which none comes twice."""
        left = self._free[rows] - amounts
        if ((left < 0) & (amounts > 0)).any():
            raise ValueError(f"{[self.nodes.names[row] for row in rows]} have no room for {amounts.tolist()}")
        self._free[rows] = left
        self._changed(rows)
        self.welcome.clear()

    def give(self, node: str, amounts: Resources, times: int = 1) -> None:
        """Put back what was taken, or so many times as much."""
        given = self._row(amounts)
        if given is not None:
            row = self.nodes.row_of[node]
            self._free[row] += given * times
            self._changed([row])
            self.refused.clear()
            self.welcome.clear()
            self.at_most.clear()
            self._sums.clear()
            self._open.clear()
            self._there = None

    def keep(self, node: str, amounts: Resources, times: int = 1) -> None:
        """For somebody who is to have so many of it, also what is not there yet: what is free may sink below zero."""
        kept = self._row(amounts)
        if kept is not None:
            row = self.nodes.row_of[node]
            self._free[row] -= kept * times
            self._changed([row])
            self.welcome.clear()

    def undo(self, placed: Mapping[Replica, str], amounts: Mapping[Replica, Resources]) -> None:
        """Put back a whole placement."""
        for replica, node in placed.items():
            self.give(node, amounts[replica])

    def _changed(self, rows: Sequence[int]) -> None:
        if not self._changes:  # what is known of a cluster on which nothing runs is not this ledger's alone
            self.refused, self.welcome = self.refused.copy(), self.welcome.copy()
        self._changes += rows

    def _renewed(self, known: tuple[Column, int], anew: Callable[[Amounts], Column]) -> Column:
        values, seen = known
        rows = np.array(list(set(self._changes[seen:])), np.int64)
        renewed = values.copy()
        renewed[rows] = anew(rows)
        return renewed

    def _row(self, wanted: Resources) -> Amounts | None:
        """By column; None when it asks for what no node has. The same mapping is asked for again and again."""
        known = self._wanted.get(id(wanted))
        if known is None or known[0] is not wanted:
            lacking = any(amount > 0 and self.nodes.column(name) is None for name, amount in wanted.items())
            there = {name: amount for name, amount in wanted.items() if self.nodes.column(name) is not None}
            known = self._wanted[id(wanted)] = (wanted, None if lacking else self.nodes.row(there))
        return known[1]
