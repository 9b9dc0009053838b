"""The nodes of a cluster as a table of numbers, with a row for each node and a column for each resource.

A scheduling cycle asks every node something for every gang shape. With 5,000 nodes that is quick only over whole
columns.
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
"""Amounts are capped to this, and larger requests fit nowhere: sums of two must not overflow."""
_MAX_REQUESTS = 4096
"""The number of masks and requests at which these caches are cleared: jobs come and go for months."""


_MAX_DEMANDS = 20_000
"""The number of demands at which their cache is cleared."""


class Inventory(Collection[NodeState]):
    """The nodes, sorted by name. Inventories are immutable; `changed` returns another, and shares what is remembered
    with it.
    """

    def __init__(self, states: tuple[NodeState, ...], resources: tuple[str, ...]) -> None:
        self.states = states
        self.resources = resources
        """The resource names, in the order of columns."""
        self.names = tuple(state.name for state in states)
        self.row_of: Mapping[str, int] = {name: row for row, name in enumerate(self.names)}
        self._columns: Mapping[str, int] = {name: column for column, name in enumerate(resources)}
        self.capacity = self._table([state.capacity for state in states])
        self.free = self._table([state.free for state in states])
        self.releasing = self._table([state.releasing for state in states])
        self._largest = [max(1, int(column.max(initial=0))) for column in self.capacity.T]
        self._scarcest = sorted(range(len(resources)), key=lambda column: ("/" not in resources[column], column))
        """The columns, accelerators first: where there are none free, no other column has to be examined."""
        self._weights = [(column, weight) for column in range(len(resources)) if (weight := self._weight(column))]
        self.domains = _domains(states)
        """From wide to narrow, the number of each row's domain; -1 for a node without one."""
        self.never: set[Hashable] = set()
        """Shapes that do not fit even the empty cluster; see `Ledger.refused`."""
        self.ever: set[Hashable] = set()
        """Shapes that fit the empty cluster."""
        self._memory = Lore()
        self.loose: OfRunning[Loose | None] = OfRunning()
        self.staying: OfRunning[bool] = OfRunning()
        """Whether no replica of a running gang has to move or go."""
        self._masks: dict[frozenset[str], Mask] = {}
        self._requests: dict[Hashable, Ask] = {}
        self.questions = Questions()
        """The requests made of these nodes."""
        self.pieces = Pieces(len(resources))
        """The allocations of the last cycle's running gangs."""
        self._domain_numbers: dict[int, tuple[Mapping[str, str], Amounts, Sequence[str]]] = {}

    @classmethod
    def of(cls, states: Iterable[NodeState]) -> Inventory:
        """Return an inventory unchanged; build one from other states."""
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
        """Return an inventory of the same nodes, some of them in another state. Raises KeyError for an unknown node."""
        rows = {self.row_of[state.name]: state for state in states}
        if not rows:
            return self
        all_states = list(self.states)
        for row, state in rows.items():
            all_states[row] = state
        is_new_column = not self._columns.keys() >= set(_resources_of(rows.values()))
        if is_new_column or any(_stable_part(self.states[row]) != _stable_part(state) for row, state in rows.items()):
            return Inventory.of(all_states)
        result = object.__new__(Inventory)
        result.resources, result.names, result.row_of = self.resources, self.names, self.row_of
        result._columns, result._masks = self._columns, self._masks
        result._requests, result._domain_numbers = self._requests, self._domain_numbers
        result.never, result.ever, result._memory = self.never, self.ever, self._memory
        result.domains, result._weights, result._largest = self.domains, self._weights, self._largest
        result._scarcest, result.questions = self._scarcest, self.questions
        result.states = tuple(all_states)
        result.loose, result.staying, result.pieces = self.loose, self.staying, self.pieces
        result.capacity = self.capacity
        result.free, result.releasing = self.free.copy(order="K"), self.releasing.copy(order="K")
        for row, state in rows.items():
            result.free[row] = self.row(state.free)
            result.releasing[row] = self.row(state.releasing)
        return result

    def lore(self, away: Sequence[NodeState]) -> Lore:
        """Return the memory for these unavailable nodes. A change of them, or of any node's capacity,
        starts a new one.
        """
        if self._memory.away != tuple(away):
            self._memory = Lore(away)
        return self._memory

    def column(self, resource: str) -> int | None:
        """The column of a resource; None if no node has it."""
        return self._columns.get(resource)

    def row(self, amounts: Resources) -> Amounts:
        """Convert the amounts of one node to a row."""
        row = np.zeros(len(self.resources), np.int64)
        for name, amount in amounts.items():
            row[self._columns[name]] = min(amount, LARGEST)
        return row

    def mask(self, eligible: frozenset[str]) -> Mask:
        """A mask of the eligible rows, cached because thousands of gangs may be eligible for the same nodes."""
        mask = self._masks.get(eligible)
        if mask is None:
            if len(self._masks) >= _MAX_REQUESTS:
                self._masks.clear()
            mask = np.fromiter((name in eligible for name in self.names), np.bool_, len(self.names))
            self._masks[eligible] = mask
        return mask

    def ask(self, demand: Demand) -> Ask:
        """The node request of a demand. It is cached by identity, which is quick, by shape, and by what it requests of
        which nodes.
        """
        cached = self.questions.of_demand.get(id(demand))
        if cached is None or cached[0] is not demand:
            if len(self.questions.of_demand) >= _MAX_DEMANDS:
                self.questions.of_demand.clear()
            cached = self.questions.of_demand[id(demand)] = demand, self._find_request(demand)
        return cached[1]

    def _find_request(self, demand: Demand) -> Ask:
        cached = self._requests.get(demand.shape)
        if cached is not None:
            return cached
        if len(self._requests) >= _MAX_REQUESTS:
            self._requests.clear()
            self.questions.clear()
        each = frozenset((name, amount) for name, amount in demand.each.items() if amount > 0)
        key = (each, demand.eligible)
        request = self._requests.get(key)
        if request is None:
            possible = all(name in self._columns and amount <= LARGEST for name, amount in each)
            row = self.row({name: amount for name, amount in each if name in self._columns})
            request = self._requests[key] = Ask(row, self.mask(demand.eligible), self._scarcest, possible=possible)
            request.weight = self._request_weight(request)
            self.questions.add(request)
        self._requests[demand.shape] = request
        return request

    def _request_weight(self, request: Ask) -> float:
        shares = [
            amount / self._largest[column] * (1000.0 if "/" in self.resources[column] else 1.0)
            for column, amount in request.columns
        ]
        return max(shares, default=LIGHTEST)

    def liking(self, demand: Demand) -> Amounts:
        """The preference score of each row."""
        scores = np.zeros(len(self.names), np.int64)
        for name, score in demand.preference.items():
            row = self.row_of.get(name)
            if row is not None:
                scores[row] = score
        return scores

    def sites(self, domains: Mapping[str, str]) -> tuple[Amounts, Sequence[str]]:
        """The number of each row's domain, -1 without one; and the domains by number, including those
        of other nodes.
        """
        cached = self._domain_numbers.get(id(domains))
        if cached is None or cached[0] is not domains:
            if len(self._domain_numbers) >= _MAX_REQUESTS:
                self._domain_numbers.clear()
            names = sorted(set(domains.values()))
            numbers: dict[str | None, int] = {name: number for number, name in enumerate(names)}
            numbers_by_row = np.fromiter(
                (numbers.get(domains.get(name), -1) for name in self.names), np.int64, len(self.names)
            )
            cached = self._domain_numbers[id(domains)] = domains, numbers_by_row, names
        return cached[1], cached[2]

    def held(self, gang: RunningGang) -> tuple[Amounts, Amounts]:
        """The rows on which a gang holds something, and the amounts. For many gangs, use `pieces`, which keeps them."""
        each = {demand.type: self.ask(demand).row for demand in gang.demands}
        by_row: dict[int, Amounts] = {}
        for replica, node in gang.nodes.items():
            row = self.row_of.get(node)
            if row is not None and replica not in gang.finished and replica.type in each:
                by_row[row] = by_row[row] + each[replica.type] if row in by_row else each[replica.type]
        amounts = np.array(list(by_row.values()), np.int64).reshape(len(by_row), len(self.resources))
        return np.fromiter(by_row, np.int64, len(by_row)), amounts

    def nearest(self, each: Resources, eligible: frozenset[str]) -> Resources:
        """The capacity of the eligible node that lacks least for such a replica; empty if no node is eligible."""
        rows = np.flatnonzero(self.mask(eligible))
        if not len(rows):
            return {}
        lacking_resources, lacking_amounts = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
        for name, amount in each.items():
            column = self._columns.get(name)
            available = 0 if column is None else self.capacity[rows, column].clip(min=0)
            lacking = np.maximum(min(amount, LARGEST) - available, 0)
            lacking_resources += lacking > 0
            lacking_amounts += lacking
        return self.states[int(rows[np.lexsort((lacking_amounts, lacking_resources))[0]])].capacity

    def total(self, table: Amounts) -> Resources:
        """Sum a table exactly, by resource: thousands of terabytes in thousandths of bytes exceed 63 bits."""
        high, low = (table >> 20).sum(axis=0).tolist(), (table & (2**20 - 1)).sum(axis=0).tolist()
        return {name: (high[column] << 20) + low[column] for name, column in self._columns.items()}

    def amounts(self, row: Amounts) -> Resources:
        """Convert a row of a table to amounts by resource."""
        return {name: int(row[column]) for name, column in self._columns.items()}

    def roominess(self, table: Amounts) -> Scores:
        """A score by row of how much is left for others. Accelerators are the scarcest and decide, then memory, then
        cpu.
        """
        score = np.zeros(len(table), np.float64)
        for column, weight in self._weights:
            score += table[:, column] * weight
        return score

    def _weight(self, column: int) -> float:
        """The weight of a resource in `roominess`, relative to the largest node."""
        name = self.resources[column]
        return (1e6 if "/" in name else {MEMORY: 1e3, CPU: 1.0}.get(name, 0.0)) / self._largest[column]

    def _table(self, of_nodes: Sequence[Resources]) -> Amounts:
        """Build a table in column order in memory, since it is read by column."""
        table = np.zeros((len(of_nodes), len(self.resources)), np.int64, order="F")
        for row, amounts in enumerate(of_nodes):
            for name, amount in amounts.items():
                table[row, self._columns[name]] = min(amount, LARGEST)
        return table


def _resources_of(states: Iterable[NodeState]) -> tuple[str, ...]:
    names = {name for state in states for amounts in (state.capacity, state.free, state.releasing) for name in amounts}
    return tuple(sorted(names))


def _stable_part(state: NodeState) -> object:
    """What stays the same while pods come and go. If it changes, everything remembered about the cluster is dropped."""
    return state.capacity, state.domains


def _domains(states: Sequence[NodeState]) -> tuple[Amounts, ...]:
    """Number the domains of each level. Racks of the same name in different zones are different domains."""
    depth = max((len(state.domains) for state in states), default=0)
    levels: list[Amounts] = []
    for level in range(1, depth + 1):
        prefixes = [state.domains[:level] if len(state.domains) >= level else None for state in states]
        numbers = {prefix: number for number, prefix in enumerate(sorted({one for one in prefixes if one is not None}))}
        levels.append(np.array([-1 if prefix is None else numbers[prefix] for prefix in prefixes], np.int64))
    return tuple(levels)
