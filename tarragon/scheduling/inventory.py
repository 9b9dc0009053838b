"""The nodes of a cluster as one table of numbers: a row a node, a column a resource.

A round asks every node something for every shape of gang. With 5,000 nodes that is only quick over whole columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tarragon.base.resources import Resources
from tarragon.scheduling.snapshot import NodeState

Amounts = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Inventory(Collection[NodeState]):
    """Nodes by name. Never changed: `changed` makes the next one, in the time that copying three tables takes."""

    def __init__(self, states: tuple[NodeState, ...], resources: tuple[str, ...]) -> None:
        self.states = states
        self.resources = resources
        """The columns."""
        self.names = tuple(state.name for state in states)
        self.row_of: Mapping[str, int] = {name: row for row, name in enumerate(self.names)}
        self._columns: Mapping[str, int] = {name: column for column, name in enumerate(resources)}
        self.capacity = self._table([state.capacity for state in states])
        self.free = self._table([state.free for state in states])
        self.releasing = self._table([state.releasing for state in states])
        self._masks: dict[frozenset[str], Mask] = {}

    @classmethod
    def of(cls, states: Iterable[NodeState]) -> Inventory:
        """An inventory is taken as it is."""
        if isinstance(states, Inventory):
            return states
        rows = tuple(states)
        return cls(rows, _resources_of(rows))

    def __len__(self) -> int:
        return len(self.states)

    def __iter__(self) -> Iterator[NodeState]:
        return iter(self.states)

    def __contains__(self, state: object) -> bool:
        return state in self.states

    def changed(self, states: Iterable[NodeState]) -> Inventory:
        """The same nodes, some of them with other amounts. Raises KeyError for a node that is not among them."""
        rows = {self.row_of[state.name]: state for state in states}
        if not rows:
            return self
        if not self._columns.keys() >= set(_resources_of(rows.values())):
            return Inventory.of(rows.get(row, state) for row, state in enumerate(self.states))
        made = object.__new__(Inventory)
        made.resources, made.names, made.row_of = self.resources, self.names, self.row_of
        made._columns, made._masks = self._columns, self._masks
        made.states = tuple(rows.get(row, state) for row, state in enumerate(self.states))
        made.capacity, made.free, made.releasing = self.capacity.copy(), self.free.copy(), self.releasing.copy()
        for row, state in rows.items():
            made.capacity[row] = self.row(state.capacity)
            made.free[row] = self.row(state.free)
            made.releasing[row] = self.row(state.releasing)
        return made

    def column(self, resource: str) -> int | None:
        """None for a resource that no node has."""
        return self._columns.get(resource)

    def row(self, amounts: Resources) -> Amounts:
        """Those of one node, by column."""
        row = np.zeros(len(self.resources), np.int64)
        for name, amount in amounts.items():
            row[self._columns[name]] = amount
        return row

    def mask(self, eligible: frozenset[str]) -> Mask:
        """Which rows these are. Kept: thousands of gangs may run on the same nodes."""
        known = self._masks.get(eligible)
        if known is None:
            known = np.fromiter((name in eligible for name in self.names), np.bool_, len(self.names))
            self._masks[eligible] = known
        return known

    def amounts(self, row: Amounts) -> Resources:
        """A row of a table, in words."""
        return {name: int(row[column]) for name, column in self._columns.items()}

    def _table(self, of_nodes: Sequence[Resources]) -> Amounts:
        table = np.zeros((len(of_nodes), len(self.resources)), np.int64)
        for row, amounts in enumerate(of_nodes):
            for name, amount in amounts.items():
                table[row, self._columns[name]] = amount
        return table


def _resources_of(states: Iterable[NodeState]) -> tuple[str, ...]:
    names = {name for state in states for amounts in (state.capacity, state.free, state.releasing) for name in amounts}
    return tuple(sorted(names))
