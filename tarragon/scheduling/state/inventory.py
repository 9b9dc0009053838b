"""The nodes of a cluster as one table of numbers: a row a node, a column a resource.

A round asks every node something for every shape of gang. With 5,000 nodes that is only quick over whole columns.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tarragon.base.resources import CPU, MEMORY, Resources
from tarragon.scheduling.api.cycle_memory import Loose, Lore, OfRunning
from tarragon.scheduling.api.snapshot import Demand, NodeState, RunningGang
from tarragon.scheduling.state.allocations import Pieces
from tarragon.scheduling.state.capacity_index import Questions
from tarragon.scheduling.state.node_requests import LIGHTEST, Amounts, Ask, Mask

Scores = npt.NDArray[np.float64]

LARGEST = 2**61
"""No node counts as having more of anything, and no node has room for who asks for more: sums of two stay numbers."""
_KEPT = 4096
"""Masks and questions that are remembered; jobs come and go for months, what they asked for must not stay."""


_DEMANDS = 20_000
"""Beyond that all are asked anew."""


class Inventory(Collection[NodeState]):
    """Nodes, sorted by name. Never changed: `changed` makes the next one, in the time that two copies take."""

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
        self._most = [max(1, int(column.max(initial=0))) for column in self.capacity.T]
        self._scarcest = sorted(range(len(resources)), key=lambda column: ("/" not in resources[column], column))
        """The columns, those of accelerators first: where there are none, nothing else needs to be looked at."""
        self._weights = [(column, weight) for column in range(len(resources)) if (weight := self._weight(column))]
        self.domains = _domains(states)
        """From wide to narrow, the number of each row's domain; -1 for a node that says nothing of where it stands."""
        self.never: set[Hashable] = set()
        """Shapes that there is no room for even while nothing runs: see `Ledger.refused`."""
        self.ever: set[Hashable] = set()
        """Shapes that there is room for then."""
        self._lore = Lore()
        self.loose: OfRunning[Loose | None] = OfRunning()
        self.staying: OfRunning[bool] = OfRunning()
        """Whether all of it stays where it is."""
        self._masks: dict[frozenset[str], Mask] = {}
        self._asks: dict[Hashable, Ask] = {}
        self.questions = Questions()
        """All that was asked of these nodes."""
        self.pieces = Pieces(len(resources))
        """Of the gangs that ran in the round before, all that they hold."""
        self._sites: dict[int, tuple[Mapping[str, str], Amounts, Sequence[str]]] = {}

    @classmethod
    def of(cls, states: Iterable[NodeState]) -> Inventory:
        """An inventory is taken as it is."""
        if isinstance(states, Inventory):
            return states
        rows = tuple(sorted(states, key=lambda state: state.name))
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
        all_states = list(self.states)
        for row, state in rows.items():
            all_states[row] = state
        is_new_column = not self._columns.keys() >= set(_resources_of(rows.values()))
        if is_new_column or any(_offer(self.states[row]) != _offer(state) for row, state in rows.items()):
            return Inventory.of(all_states)
        made = object.__new__(Inventory)
        made.resources, made.names, made.row_of = self.resources, self.names, self.row_of
        made._columns, made._masks, made._asks, made._sites = self._columns, self._masks, self._asks, self._sites
        made.never, made.ever, made._lore = self.never, self.ever, self._lore
        made.domains, made._weights, made._most = self.domains, self._weights, self._most
        made._scarcest, made.questions = self._scarcest, self.questions
        made.states = tuple(all_states)
        made.loose, made.staying, made.pieces = self.loose, self.staying, self.pieces
        made.capacity = self.capacity
        made.free, made.releasing = self.free.copy(order="K"), self.releasing.copy(order="K")
        for row, state in rows.items():
            made.free[row] = self.row(state.free)
            made.releasing[row] = self.row(state.releasing)
        return made

    def lore(self, away: Sequence[NodeState]) -> Lore:
        """Of these nodes, while those are away. Kept while they have as much capacity as they have."""
        if self._lore.away != tuple(away):
            self._lore = Lore(away)
        return self._lore

    def column(self, resource: str) -> int | None:
        """None for a resource that no node has."""
        return self._columns.get(resource)

    def row(self, amounts: Resources) -> Amounts:
        """Those of one node, by column."""
        row = np.zeros(len(self.resources), np.int64)
        for name, amount in amounts.items():
            row[self._columns[name]] = min(amount, LARGEST)
        return row

    def mask(self, eligible: frozenset[str]) -> Mask:
        """Which rows these are. Kept: thousands of gangs may run on the same nodes."""
        known = self._masks.get(eligible)
        if known is None:
            if len(self._masks) >= _KEPT:
                self._masks.clear()
            known = np.fromiter((name in eligible for name in self.names), np.bool_, len(self.names))
            self._masks[eligible] = known
        return known

    def ask(self, demand: Demand) -> Ask:
        """Kept: by which object the demand is, which is quick; for others of its shape; and for those that differ in
        numbers only.
        """
        known = self.questions.of_demand.get(id(demand))
        if known is None or known[0] is not demand:
            if len(self.questions.of_demand) >= _DEMANDS:
                self.questions.of_demand.clear()
            known = self.questions.of_demand[id(demand)] = demand, self._ask(demand)
        return known[1]

    def _ask(self, demand: Demand) -> Ask:
        known = self._asks.get(demand.shape)
        if known is not None:
            return known
        if len(self._asks) >= _KEPT:
            self._asks.clear()
            self.questions.clear()
        each = frozenset((name, amount) for name, amount in demand.each.items() if amount > 0)
        same = (each, demand.eligible)
        ask = self._asks.get(same)
        if ask is None:
            possible = all(name in self._columns and amount <= LARGEST for name, amount in each)
            row = self.row({name: amount for name, amount in each if name in self._columns})
            ask = self._asks[same] = Ask(row, self.mask(demand.eligible), self._scarcest, possible=possible)
            ask.weight = self._weight_of(ask)
            self.questions.add(ask)
        self._asks[demand.shape] = ask
        return ask

    def _weight_of(self, ask: Ask) -> float:
        shares = [
            amount / self._most[column] * (1000.0 if "/" in self.resources[column] else 1.0)
            for column, amount in ask.columns
        ]
        return max(shares, default=LIGHTEST)

    def liking(self, demand: Demand) -> Amounts:
        """How much each row is preferred."""
        liked = np.zeros(len(self.names), np.int64)
        for name, score in demand.preference.items():
            row = self.row_of.get(name)
            if row is not None:
                liked[row] = score
        return liked

    def sites(self, domains: Mapping[str, str]) -> tuple[Amounts, Sequence[str]]:
        """The number of each row's domain, -1 where it has none; and the domains by number, other nodes' too."""
        known = self._sites.get(id(domains))
        if known is None or known[0] is not domains:
            if len(self._sites) >= _KEPT:
                self._sites.clear()
            names = sorted(set(domains.values()))
            numbers: dict[str | None, int] = {name: number for number, name in enumerate(names)}
            of = np.fromiter((numbers.get(domains.get(name), -1) for name in self.names), np.int64, len(self.names))
            known = self._sites[id(domains)] = domains, of, names
        return known[1], known[2]

    def held(self, gang: RunningGang) -> tuple[Amounts, Amounts]:
        """On which rows it holds something, and what. Of many gangs, `pieces` has it kept."""
        each = {demand.type: self.ask(demand).row for demand in gang.demands}
        there: dict[int, Amounts] = {}
        for replica, node in gang.nodes.items():
            row = self.row_of.get(node)
            if row is not None and replica not in gang.finished and replica.type in each:
                there[row] = there[row] + each[replica.type] if row in there else each[replica.type]
        amounts = np.array(list(there.values()), np.int64).reshape(len(there), len(self.resources))
        return np.fromiter(there, np.int64, len(there)), amounts

    def nearest(self, each: Resources, eligible: frozenset[str]) -> Resources:
        """What the one of these nodes has in all that lacks least for such a replica; nothing where there is none."""
        rows = np.flatnonzero(self.mask(eligible))
        if not len(rows):
            return {}
        kinds, amounts = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
        for name, amount in each.items():
            column = self._columns.get(name)
            there = 0 if column is None else self.capacity[rows, column].clip(min=0)
            lacking = np.maximum(min(amount, LARGEST) - there, 0)
            kinds += lacking > 0
            amounts += lacking
        return self.states[int(rows[np.lexsort((amounts, kinds))[0]])].capacity

    def total(self, table: Amounts) -> Resources:
        """Of all rows together, exactly: thousands of terabytes, in thousandths of bytes, are too much for 63 bits."""
        high, low = (table >> 20).sum(axis=0).tolist(), (table & (2**20 - 1)).sum(axis=0).tolist()
        return {name: (high[column] << 20) + low[column] for name, column in self._columns.items()}

    def amounts(self, row: Amounts) -> Resources:
        """A row of a table, in words."""
        return {name: int(row[column]) for name, column in self._columns.items()}

    def roominess(self, table: Amounts) -> Scores:
        """How much is left for others, by row: accelerators are scarcest, so they decide; then memory, then cpu."""
        score = np.zeros(len(table), np.float64)
        for column, weight in self._weights:
            score += table[:, column] * weight
        return score

    def _weight(self, column: int) -> float:
        """Of a resource beside the others, where the roomiest node has 1 of each."""
        name = self.resources[column]
        return (1e6 if "/" in name else {MEMORY: 1e3, CPU: 1.0}.get(name, 0.0)) / self._most[column]

    def _table(self, of_nodes: Sequence[Resources]) -> Amounts:
        """By column in memory: columns are what is asked."""
        table = np.zeros((len(of_nodes), len(self.resources)), np.int64, order="F")
        for row, amounts in enumerate(of_nodes):
            for name, amount in amounts.items():
                table[row, self._columns[name]] = min(amount, LARGEST)
        return table


def _resources_of(states: Iterable[NodeState]) -> tuple[str, ...]:
    names = {name for state in states for amounts in (state.capacity, state.free, state.releasing) for name in amounts}
    return tuple(sorted(names))


def _offer(state: NodeState) -> object:
    """What is the same as long as pods only come and go; with it goes all that is known of the cluster."""
    return state.capacity, state.domains


def _domains(states: Sequence[NodeState]) -> tuple[Amounts, ...]:
    """A rack is told from one of the same name in another zone."""
    depth = max((len(state.domains) for state in states), default=0)
    levels: list[Amounts] = []
    for level in range(1, depth + 1):
        prefixes = [state.domains[:level] if len(state.domains) >= level else None for state in states]
        numbers = {prefix: number for number, prefix in enumerate(sorted({one for one in prefixes if one is not None}))}
        levels.append(np.array([-1 if prefix is None else numbers[prefix] for prefix in prefixes], np.int64))
    return tuple(levels)
