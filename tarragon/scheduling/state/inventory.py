"""The nodes of a cluster as a table of numbers, with a row for each node and a column for each resource.

A scheduling cycle asks every node something for every gang shape. With 5,000 nodes that is quick only over whole
columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

from tarragon.base.gpu_constraints import is_mark, mark_names
from tarragon.base.resources import CPU, GPU_MEMORY, MEMORY, NVIDIA_GPU, Resources, vgpu_memory, vgpu_share
from tarragon.job.model import Replica
from tarragon.job.places import vgpu_of, vgpu_place
from tarragon.scheduling.api.snapshot import Demand, NodeState, RunningGang
from tarragon.scheduling.state.node_requests import Amounts, Mask
from tarragon.scheduling.state.vgpus import SHAREABLE_GPUS, UNSHARED_GPUS, VgpuColumns

ScoreArray = npt.NDArray[np.float64]
Allocation = tuple[str, Resources, int]
"""A place, what one replica holds there, and the number of such replicas."""

MAX_AMOUNT = 2**61
"""Amounts are capped to this, and larger requests fit nowhere: sums of two must not overflow."""
_VGPU_PREFIX = f"{NVIDIA_GPU}/"


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """What stays the same while pods come and go. The inventories of one cluster share one object until a node comes or
    goes, or changes its capacity or topology.
    """

    names: tuple[str, ...]
    resources: tuple[str, ...]
    """The resource names, in the order of columns."""
    row_of: Mapping[str, int]
    """The row of each node, and of each place on its vGPUs."""
    columns: Mapping[str, int]
    capacity: Amounts
    largest: Sequence[int]
    """The largest capacity of any node by column, at least 1."""
    scarcest: Sequence[int]
    """The columns, accelerators first: where there are none free, no other column has to be examined."""
    weights: Sequence[tuple[int, float]]
    """The columns that count in `Inventory.free_scores`, with their weights."""
    domains: tuple[Amounts, ...]
    """From wide to narrow, the number of each row's domain; -1 for a node without one."""
    vgpus: VgpuColumns | None
    """Where shared GPUs are in the table; None if no GPU may be shared."""

    @classmethod
    def of(cls, states: Sequence[NodeState], resources: tuple[str, ...]) -> Layout:
        names = tuple(state.name for state in states)
        columns = {name: column for column, name in enumerate(resources)}
        capacity = _table([state.capacity for state in states], columns)
        if SHAREABLE_GPUS in columns:
            capacity[:, columns[SHAREABLE_GPUS]] = [_shareable(state) for state in states]
        largest = [max(1, int(column.max(initial=0))) for column in capacity.T]
        vgpus = VgpuColumns.of(columns)
        return cls(
            names,
            resources,
            _rows_by_place(states),
            columns,
            capacity,
            largest,
            sorted(range(len(resources)), key=lambda column: ("/" not in resources[column], column)),
            [(column, weight) for column, name in enumerate(resources) if (weight := _weight(name) / largest[column])],
            _domains(states),
            vgpus,
        )


class Inventory(Collection[NodeState]):
    """The nodes, sorted by name. An inventory is a value: nothing writes into it, and `with_states` returns another."""

    def __init__(self, states: tuple[NodeState, ...], layout: Layout, free: Amounts, releasing: Amounts) -> None:
        self.states = states
        self.layout = layout
        self.names, self.resources, self.row_of = layout.names, layout.resources, layout.row_of
        self.capacity, self.domains = layout.capacity, layout.domains
        self.free, self.releasing = free, releasing
        for table in (free, releasing, layout.capacity):
            table.setflags(write=False)

    @classmethod
    def of(cls, states: Iterable[NodeState]) -> Inventory:
        """Return an inventory unchanged; build one from other states."""
        if isinstance(states, Inventory):
            return states
        rows = tuple(sorted(states, key=lambda state: state.name))
        layout = Layout.of(rows, _resources_of(rows))
        free = _free_table(rows, layout)
        return cls(rows, layout, free, _table([state.releasing for state in rows], layout.columns))

    def __len__(self) -> int:
        return len(self.states)

    def __iter__(self) -> Iterator[NodeState]:
        return iter(self.states)

    def __contains__(self, state: object) -> bool:
        return state in self.states

    def with_states(self, states: Iterable[NodeState]) -> Inventory:
        """Return an inventory of the same nodes, some of them in another state. Raises KeyError for an unknown node."""
        rows = {self.row_of[state.name]: state for state in states}
        if not rows:
            return self
        all_states = list(self.states)
        for row, state in rows.items():
            all_states[row] = state
        is_new_column = not self.layout.columns.keys() >= set(_resources_of(rows.values()))
        if is_new_column or any(_stable_part(self.states[row]) != _stable_part(state) for row, state in rows.items()):
            return Inventory.of(all_states)
        free, releasing = self.free.copy(order="K"), self.releasing.copy(order="K")
        changed = list(rows)
        free[changed] = _free_table(list(rows.values()), self.layout)
        for row, state in rows.items():
            releasing[row] = self.to_row(state.releasing)
        return Inventory(tuple(all_states), self.layout, free, releasing)

    def column(self, resource: str) -> int | None:
        """The column of a resource; None if no node has it."""
        return self.layout.columns.get(resource)

    def to_row(self, amounts: Resources) -> Amounts:
        """Convert the amounts of one node to a row."""
        return np.array(_row(amounts, self.layout.columns), np.int64)

    def known_row(self, amounts: Resources) -> Amounts:
        """Do as `row`, leaving out what no node has."""
        return self.to_row({name: amount for name, amount in amounts.items() if name in self.layout.columns})

    def mask(self, eligible: frozenset[str]) -> Mask:
        """A mask of the eligible rows."""
        return np.fromiter((name in eligible for name in self.names), np.bool_, len(self.names))

    def preference_scores(self, demand: Demand) -> Amounts:
        """The preference score of each row."""
        scores = np.zeros(len(self.names), np.int64)
        for name, score in demand.node_scores.items():
            row = self.row_of.get(name)
            if row is not None:
                scores[row] = score
        return scores

    def allocation_of(self, gang: RunningGang) -> tuple[Amounts, Amounts]:
        """The rows on which a gang holds something, and the amounts."""
        by_row: dict[int, Amounts] = {}
        for place, each, number in self.held_by(gang.demands, gang.nodes, gang.finished):
            row = self.row_of.get(place)
            if row is not None:
                held = self.known_row(each) * number
                by_row[row] = by_row[row] + held if row in by_row else held
        amounts = np.array(list(by_row.values()), np.int64).reshape(len(by_row), len(self.resources))
        return np.fromiter(by_row, np.int64, len(by_row)), amounts

    def held_by(
        self, demands: Sequence[Demand], nodes: Mapping[Replica, str], finished: Collection[Replica] = ()
    ) -> list[Allocation]:
        """Return what replicas hold, by place: most nodes of a gang run several equal ones. Replicas of a type that the
        job no longer has hold nothing, nor do finished ones.
        """
        by_type = {demand.type: demand for demand in demands}
        held: list[Allocation] = []
        runs = groupby(nodes.items(), key=lambda item: (item[0].type, item[1]))
        for (replica_type, place), run in runs:
            number = sum(replica not in finished for replica, _ in run) if finished else len(list(run))
            if replica_type in by_type and number:
                held.append((place, self.amounts_at(place, by_type[replica_type]), number))
        return held

    def amounts_at(self, place: str, demand: Demand) -> Resources:
        """Return what a replica of this demand holds at a place."""
        number = vgpu_of(place)
        if demand.share is None and number is None:
            return demand.resources
        others = {name: amount for name, amount in demand.resources.items() if name != NVIDIA_GPU}
        if demand.share is None or number is None:
            return others  # The template has changed since: what its pod holds of GPUs is something else.
        row = self.row_of.get(place)
        gpu_memory = self.states[row].capacity.get(GPU_MEMORY, 0) if row is not None else 0
        return {**others, **demand.share.amounts(number, gpu_memory)}

    def closest_capacity(self, each: Resources, eligible: frozenset[str]) -> Resources:
        """The capacity of the eligible node that lacks least for such a replica; empty if no node is eligible."""
        rows = np.flatnonzero(self.mask(eligible))
        if not len(rows):
            return {}
        lacking_resources, lacking_amounts = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
        for name, amount in each.items():
            column = self.layout.columns.get(name)
            available = 0 if column is None else self.capacity[rows, column].clip(min=0)
            lacking = np.maximum(min(amount, MAX_AMOUNT) - available, 0)
            lacking_resources += lacking > 0
            lacking_amounts += lacking
        return self.states[int(rows[np.lexsort((lacking_amounts, lacking_resources))[0]])].capacity

    def total(self, table: Amounts) -> Resources:
        """Sum a table exactly, by resource: thousands of terabytes in thousandths of bytes exceed 63 bits."""
        return dict(zip(self.resources, _exact_sums(table), strict=True))

    def total_free(self, table: Amounts) -> Resources:
        """Sum what is free, by resource. Nothing is in the columns of vGPUs, as what is held of these is negative."""
        vgpus = self.layout.vgpus
        held = () if vgpus is None else {*vgpus.shares, *vgpus.memories}
        columns = [column for column in range(len(self.resources)) if column not in held]
        sums = _exact_sums(table.T[columns].clip(min=0).T)
        return dict.fromkeys(self.resources, 0) | dict(
            zip((self.resources[column] for column in columns), sums, strict=True)
        )

    def from_row(self, row: Amounts) -> Resources:
        """Convert a row of a table to amounts by resource."""
        return {name: int(row[column]) for name, column in self.layout.columns.items()}

    def free_scores(self, table: Amounts) -> ScoreArray:
        """A score by row of how much is left for others. Accelerators are the scarcest and decide, then memory, then
        cpu.
        """
        score = np.zeros(len(table), np.float64)
        for column, weight in self.layout.weights:
            score += table[:, column] * weight
        vgpus = self.layout.vgpus
        if vgpus is not None:
            score += vgpus.fractions(table) * dict(self.layout.weights)[vgpus.free]
        return score


def _exact_sums(table: Amounts) -> list[int]:
    high, low = (table >> 20).sum(axis=0).tolist(), (table & (2**20 - 1)).sum(axis=0).tolist()
    return [(high_part << 20) + low_part for high_part, low_part in zip(high, low, strict=True)]


def _weight(resource: str) -> float:
    """The weight of a resource in `Inventory.free_scores`. What is left of vGPUs is added to the free GPUs."""
    if resource.startswith(_VGPU_PREFIX):
        return 0.0
    return 1e6 if "/" in resource else {MEMORY: 1e3, CPU: 1.0}.get(resource, 0.0)


def _table(of_nodes: Sequence[Resources], columns: Mapping[str, int]) -> Amounts:
    """Build a table in column order in memory, since it is read by column."""
    rows = [_row(amounts, columns) for amounts in of_nodes]
    return np.array(rows, np.int64, order="F").reshape(len(of_nodes), len(columns), order="F")


def _row(amounts: Resources, columns: Mapping[str, int]) -> list[int]:
    row = [0] * len(columns)
    for name, amount in amounts.items():
        row[columns[name]] = max(-MAX_AMOUNT, min(amount, MAX_AMOUNT))
    unshared = columns.get(UNSHARED_GPUS)
    if unshared is not None:
        row[unshared] = min(amounts.get(NVIDIA_GPU, 0), MAX_AMOUNT)
    return row


def _free_table(states: Sequence[NodeState], layout: Layout) -> Amounts:
    """Build the table of what is free, in which GPUs that are shared do not count as free ones."""
    table = _table([state.free for state in states], layout.columns)
    if layout.vgpus is not None:
        table[:, layout.vgpus.gpu_memory] = [min(state.capacity.get(GPU_MEMORY, 0), MAX_AMOUNT) for state in states]
        table[:, layout.vgpus.shareable] = [_shareable(state) for state in states]
        layout.vgpus.settle(table)
    return table


def _resources_of(states: Iterable[NodeState]) -> tuple[str, ...]:
    names = {name for state in states for amounts in (state.capacity, state.free, state.releasing) for name in amounts}
    numbers = range(_vgpu_count(names))
    if numbers:
        marks = mark_names(len(numbers), ()) if any(map(is_mark, names)) else ()
        names |= {
            *marks,
            NVIDIA_GPU,
            UNSHARED_GPUS,
            SHAREABLE_GPUS,
            GPU_MEMORY,
            *map(vgpu_share, numbers),
            *map(vgpu_memory, numbers),
        }
    return tuple(sorted(names))


def _vgpu_count(names: Collection[str]) -> int:
    """The number of vGPUs on the node with most of them."""
    numbers = (name.removeprefix(_VGPU_PREFIX).partition("/")[0] for name in names if name.startswith(_VGPU_PREFIX))
    return max((int(number) + 1 for number in numbers if number.isdecimal()), default=0)


def _shareable(state: NodeState) -> int:
    """The number of vGPUs that a node may have, in thousandths."""
    gpus = state.capacity.get(NVIDIA_GPU, 0) // 1000
    return sum(vgpu_share(number) in state.capacity for number in range(gpus)) * 1000


def _rows_by_place(states: Sequence[NodeState]) -> Mapping[str, int]:
    rows = {state.name: row for row, state in enumerate(states)}
    for row, state in enumerate(states):
        rows |= {vgpu_place(state.name, number): row for number in range(_shareable(state) // 1000)}
    return rows


def _stable_part(state: NodeState) -> object:
    """What stays the same while pods come and go. If it changes, everything remembered about the cluster is dropped."""
    return state.capacity, state.topology


def _domains(states: Sequence[NodeState]) -> tuple[Amounts, ...]:
    """Number the domains of each level. Racks of the same name in different zones are different domains."""
    depth = max((len(state.topology) for state in states), default=0)
    levels: list[Amounts] = []
    for level in range(1, depth + 1):
        prefixes = [state.topology[:level] if len(state.topology) >= level else None for state in states]
        numbers = {prefix: number for number, prefix in enumerate(sorted({one for one in prefixes if one is not None}))}
        levels.append(np.array([-1 if prefix is None else numbers[prefix] for prefix in prefixes], np.int64))
    return tuple(levels)
