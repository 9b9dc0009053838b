"""What is free on every node while a policy decides. A ledger lives within one call of the policy.

It is mutable on purpose: copying a thousand nodes for a thousand gangs took 327 ms, changing them in place 1.8 ms.
Results over all nodes are kept, and updated for nodes that have changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from tarragon.base.resources import Resources
from tarragon.job.model import Replica
from tarragon.job.places import vgpu_of, vgpu_place
from tarragon.scheduling.api.gpu_shares import VgpuShare
from tarragon.scheduling.api.snapshot import Demand, NodeState
from tarragon.scheduling.state.capacity_index import RequestTotals
from tarragon.scheduling.state.gpu_worth import GpuWorth
from tarragon.scheduling.state.gpus_left import GpusLeft
from tarragon.scheduling.state.inventory import Allocation, Inventory, ScoreArray
from tarragon.scheduling.state.memory import ClusterMemory
from tarragon.scheduling.state.node_requests import ROOM_CAP, Amounts, NodeRequest
from tarragon.scheduling.state.request_table import RequestTable
from tarragon.scheduling.state.vgpus import PartWorth, VgpuColumns

Array = TypeVar("Array", Amounts, ScoreArray)

_TOLERANCE = 1 + 1e-9
"""A relative tolerance: sums of bytes over thousands of nodes exceed 63 bits, and sums of floats are at least this
exact.
"""
_MAX_SHAPES = 20_000
"""The number of shapes at which this cache is cleared: jobs come and go for months."""


class NodeLedger:
    """Free amounts by node. `take` raises an error for what is not free, so that no node can be oversold by mistake."""

    def __init__(self, nodes: Inventory, amounts: Amounts, requests: RequestTable) -> None:
        self.nodes = nodes
        self.requests = requests
        self._free = amounts
        self._changed_rows: list[int] = []
        self._rooms: dict[NodeRequest, tuple[Amounts, int]] = {}
        self._most: dict[NodeRequest, tuple[int, int]] = {}
        """The most replicas for which one node has room."""
        self._beside: dict[tuple[NodeRequest, int], tuple[int, int]] = {}
        """What `room_beside` found, by the request and the number of the other one's mask."""
        self._scores: tuple[ScoreArray, int] | None = None
        self._total: tuple[Resources, int] | None = None
        self._gpus_left: dict[int | None, tuple[GpusLeft, int]] = {}
        """By number of the mask."""
        self._free_as_floats: ScoreArray | None = None
        self._sums: dict[int, ScoreArray] = {}
        """By number of the mask."""
        self._rows_of: dict[tuple[tuple[str, int], ...], Amounts | None] = {}
        self._candidates: dict[tuple[int, int], Amounts] = {}
        """By number of the mask, and column."""
        self._totals: RequestTotals | None = None
        self._totals_version: int | None = None
        """The ledger's version at the last update of the totals, which may have been computed for another ledger."""
        self.infeasible: set[Hashable] = set()
        """Shapes for which there is no room. Taking does not change that, but giving back may."""
        self.feasible: set[Hashable] = set()
        """Shapes for which a search has found room. Any change clears them: a search on other amounts may miss the
        room, even with more free.
        """

        self.worth: GpuWorth | None = None
        """What free resources are worth where GPUs are shared; None means that less left over is better."""
        self.room_limits: dict[NodeRequest, int] = {}
        """An upper bound on the room for a request, valid until something is given back; exact while `_totals_version`
        is the present version.
        """

    @classmethod
    def of_free(cls, nodes: Iterable[NodeState], memory: ClusterMemory | None = None) -> NodeLedger:
        """What is free now."""
        inventory = Inventory.of(nodes)
        if memory is None:
            return cls(inventory, inventory.free.copy(order="K"), RequestTable(inventory))
        ledger = cls(inventory, inventory.free.copy(order="K"), memory.requests)
        memory.requests.capacity_index.last_free = ledger.update_totals(memory.requests.capacity_index.last_free)
        return ledger

    def update_totals(self, before: RequestTotals | None) -> RequestTotals:
        """Count the room for all known requests, from earlier totals of a similar ledger where that is quicker."""
        rows = None
        if before is not None and before is self._totals and self._totals_version is not None:
            rows = self._rows_changed_since(self._totals_version)
        totals = self._totals = self.requests.capacity_index.count_totals(self._free.copy(order="K"), before, rows)
        self.room_limits, self._totals_version = dict(totals.by_request), len(self._changed_rows)
        return totals

    def with_releasing(self) -> NodeLedger:
        """Return a ledger that adds what terminating pods hold to what is free."""
        return self._with_table(self._free + self.nodes.releasing, self._totals)

    @classmethod
    def of_capacity(cls, nodes: Iterable[NodeState], memory: ClusterMemory | None = None) -> NodeLedger:
        """What would be free if no gang ran. What is found out about it is remembered from cycle to cycle."""
        inventory = Inventory.of(nodes)
        if memory is None:
            return cls(inventory, inventory.capacity.copy(order="K"), RequestTable(inventory))
        ledger = cls(inventory, inventory.capacity.copy(order="K"), memory.requests)
        for shapes in (memory.never_feasible, memory.feasible_when_empty):
            if len(shapes) > _MAX_SHAPES:
                shapes.clear()
        ledger.infeasible, ledger.feasible = memory.never_feasible, memory.feasible_when_empty
        return ledger

    def __iter__(self) -> Iterator[str]:
        return iter(self.nodes.names)

    def with_released(self, rows: Amounts, amounts: Amounts) -> NodeLedger:
        """Return the ledger as it would be with these amounts given back on these rows; a row may occur
        several times.
        """
        table = self._free.copy(order="K")
        for column in range(table.shape[1]):
            np.add.at(table[:, column], rows, amounts[:, column])
        return self._with_table(table)

    def _with_table(self, table: Amounts, totals: RequestTotals | None = None) -> NodeLedger:
        ledger = NodeLedger(self.nodes, self.settled(table), self.requests)
        ledger.worth, ledger._totals = self.worth, totals
        return ledger

    def settled(self, table: Amounts) -> Amounts:
        """Return a table of free amounts after others were added to it: it may have more vGPUs that nobody uses."""
        if self.nodes.layout.vgpus is not None:
            self.nodes.layout.vgpus.settle(table)
        return table

    def copy(self) -> NodeLedger:
        """Return an independent copy."""
        copy = NodeLedger(self.nodes, self._free.copy(order="K"), self.requests)
        copy.worth = self.worth
        copy._changed_rows, copy._rooms, copy._scores = self._changed_rows.copy(), self._rooms.copy(), self._scores
        copy.infeasible, copy.feasible, copy.room_limits = (
            self.infeasible.copy(),
            self.feasible.copy(),
            self.room_limits.copy(),
        )
        copy._totals, copy._totals_version = self._totals, self._totals_version
        return copy

    def free(self, node: str) -> Resources:
        return self.nodes.from_row(self._free[self.nodes.row_of[node]])

    @property
    def version(self) -> int:
        """A number that changes with every taking and giving."""
        return len(self._changed_rows)

    @property
    def table(self) -> Amounts:
        """The free amounts: a row for each node and a column for each resource, as in `nodes`. Must not be modified."""
        return self._free

    def room(self, request: NodeRequest) -> Amounts:
        """How many more of such replicas each node takes, by row. Must not be modified. A resource that no node has
        means zero.
        """
        cached = self._rooms.get(request)
        if cached is None:
            room = self._room(request)
        elif cached[1] == len(self._changed_rows):
            return cached[0]
        else:
            room = self._refreshed(
                cached, lambda rows: request.room_without_preselection(self._free[rows], request.mask[rows])
            )
        self._rooms[request] = room, len(self._changed_rows)
        return room

    def most_on_one_node(self, request: NodeRequest) -> int:
        """How many such replicas the node with most room takes."""
        most, version = self._most.get(request, (0, -1))
        if version != len(self._changed_rows):
            most = int(self.room(request).max(initial=0))
            self._most[request] = most, len(self._changed_rows)
        return most

    def room_beside(self, request: NodeRequest, other: NodeRequest) -> int:
        """How many such replicas there is room for on nodes that are not eligible for the other request."""
        key = request, other.mask_number
        total, version = self._beside.get(key, (0, -1))
        if version != len(self._changed_rows):
            total = int(np.minimum(self.room(request), ROOM_CAP)[~other.mask].sum())
            self._beside[key] = total, len(self._changed_rows)
        return total

    def _room(self, request: NodeRequest) -> Amounts:
        if not request.columns or not request.is_possible:
            return request.room(self._free, request.mask)
        column = request.columns[0][0]
        rows = self._candidates.get((request.mask_number, column))
        if rows is None:
            rows = np.flatnonzero((self._free[:, column] > 0) & request.mask)
            self._candidates[request.mask_number, column] = rows
        return request.room_on_rows(self._free, rows)

    def is_known_to_lack(self, request: NodeRequest, count: int) -> bool:
        """Whether it is known that there is too little room for this many. What was taken since may not be counted."""
        most = self.room_limits.get(request)
        if most is None and self._totals is not None:
            self._update_totals()
            most = self.room_limits.get(request)
        return most is not None and most < count

    def is_known_to_have(self, request: NodeRequest, count: int) -> bool:
        """Whether it is known that there is room for this many in total, with all that was taken since."""
        if self._totals is None or self._totals_version != len(self._changed_rows):
            return False
        return self.room_limits.get(request, 0) >= count

    def record_shortage(self, request: NodeRequest, most: int) -> None:
        """Record that there is room for at most this many. The totals did not show it, so they are outdated and are
        updated.
        """
        self.room_limits[request] = most
        self._update_totals()

    def has_room(self, request: NodeRequest, count: int) -> bool:
        """Whether there is room for this many in total."""
        if self.is_known_to_lack(request, count):
            return False
        self._update_totals()
        room = self.room_limits.get(request) if self._totals is not None else None
        if room is None:
            room = int(np.minimum(self.room(request), count).sum())
            if room < count:
                self.room_limits[request] = room
        return room >= count

    def _update_totals(self) -> None:
        """Update the totals if anything has changed since."""
        if self._totals is not None and self._totals_version != len(self._changed_rows):
            self.update_totals(self._totals)

    def free_scores(self) -> ScoreArray:
        """A score by row of how much is left for others; see `Inventory.free_scores`. Must not be modified."""
        if self._scores is None:
            scores = self.nodes.free_scores(self._free)
        elif self._scores[1] == len(self._changed_rows):
            return self._scores[0]
        else:
            scores = self._refreshed(self._scores, lambda rows: self.nodes.free_scores(self._free[rows]))
        self._scores = scores, len(self._changed_rows)
        return scores

    def tightest(self, rows: Amounts, wanted: int, requests: Sequence[tuple[NodeRequest, int]]) -> list[int]:
        """The `wanted` of these rows on which so many replicas of each request waste least; the first of equal ones."""
        columns = self.requests.worth_columns
        if self.worth is not None and columns is not None and len(rows) > 1:
            table = self._free[rows]
            order = np.lexsort((self.nodes.free_scores(table), columns.waste(self.worth, table, requests)))
            return [int(row) for row in rows[order[:wanted]]]
        scores = self.free_scores()[rows]
        if wanted > 1:
            return [int(row) for row in rows[np.argsort(scores, kind="stable")[:wanted]]]
        return [int(rows[int(np.argmin(scores))])]

    def may_have_total(self, amounts: Amounts, request: NodeRequest) -> bool:
        """Whether the request's eligible rows have as much in total, however fragmented. The sums are kept from the
        first call, ignoring what is taken later, which makes the check nearly free for most waiting gangs.
        """
        sums = self._sums.get(request.mask_number)
        if sums is None:
            if self._free_as_floats is None:
                self._free_as_floats = np.maximum(self._free, 0).astype(np.float64, order="F")
            sums = request.mask.astype(np.float64) @ self._free_as_floats * _TOLERANCE
            self._sums[request.mask_number] = sums
        return bool((amounts <= sums).all())

    def total(self) -> Resources:
        """What is free in total."""
        if self._total is None or self._total[1] != len(self._changed_rows):
            self._total = self.nodes.total_free(self._free), len(self._changed_rows)
        return self._total[0]

    def gpus_left(self, request: NodeRequest | None = None) -> GpusLeft | None:
        """What is left of each GPU, on the nodes that are eligible for a request; None if no GPU may be shared."""
        vgpus = self.nodes.layout.vgpus
        if vgpus is None:
            return None
        key = None if request is None else request.mask_number
        found, version = self._gpus_left.get(key, (None, -1))
        if found is None or version != len(self._changed_rows):
            found = self._gpus_on(request, vgpus)
            self._gpus_left[key] = found, len(self._changed_rows)
        return found

    def _gpus_on(self, request: NodeRequest | None, vgpus: VgpuColumns) -> GpusLeft:
        everywhere = None if request is None else self.gpus_left()
        if everywhere is None or request is None:
            return GpusLeft.of(self._free, vgpus)
        return everywhere.on(request.mask)

    def fits(self, node: str, wanted: Resources) -> bool:
        row = self.nodes.row_of.get(node)
        needed = self._row(wanted)
        return row is not None and needed is not None and bool(self._has_room(np.array([row]), needed[np.newaxis]))

    def permitted_gpu_room(self, request: NodeRequest) -> int | None:
        """How many replicas with a share the GPUs take in total, whatever else they request, with the constraints on
        who shares them; None if there are none.
        """
        vgpus = self.nodes.layout.vgpus
        if vgpus is None or request.share is None or not vgpus.marks:
            return None
        return int(vgpus.room(request.share, lambda column: self._free[:, column])[request.mask].sum())

    def permits(self, place: str, share: VgpuShare) -> bool:
        """Whether the share's constraints permit to join the pods on this vGPU."""
        vgpus, number = self.nodes.layout.vgpus, vgpu_of(place)
        if vgpus is None or number is None or not vgpus.can_mark(share.constraints):
            return False
        return vgpus.permits(share, self._free[self.nodes.row_of[place]].tolist(), number)

    def take(self, node: str, wanted: Resources) -> None:
        """Take resources. Raises ValueError if they do not fit, which means that the caller has not checked `fits`."""
        needed = self._row(wanted)
        if needed is None or not self.fits(node, wanted):
            raise ValueError(f"node {node} has no room for {dict(wanted)}")
        self.take_row(self.nodes.row_of[node], needed)

    def take_row(self, row: int, amounts: Amounts) -> None:
        """Do as `take`, with amounts by column."""
        self.take_rows([row], amounts[np.newaxis])

    def take_rows(self, rows: Sequence[int], amounts: Amounts) -> None:
        """Do as `take_row` for several rows, each at most once."""
        if not self._has_room(np.array(rows, np.int64), amounts):
            raise ValueError(f"{[self.nodes.names[row] for row in rows]} have no room for {amounts.tolist()}")
        self._free[rows] -= amounts
        self._mark_changed(rows)
        self.feasible.clear()

    def take_replicas(self, row: int, request: NodeRequest, count: int) -> list[str]:
        """Take room for so many replicas, and return their places. Raises ValueError if there is too little."""
        if request.share is None:
            self.take_row(row, request.row * count)
            return [self.nodes.names[row]] * count
        free: list[int] = self._free[row].tolist()
        places = self.places_on(row, request.take_from(free, count, self.part_worth), request, count)
        if len(places) < count or not self._has_room(np.array([row]), request.row[np.newaxis] * count):
            raise ValueError(f"{self.nodes.names[row]} has no room for {count} replicas with {request.share}")
        self.replace_rows({row: free})
        return places

    def places_on(self, row: int, numbers: Sequence[int], request: NodeRequest, count: int) -> list[str]:
        """Return the places of so many replicas on one node, of which those that need a share got these vGPUs."""
        name = self.nodes.names[row]
        return [name] * count if request.share is None else [vgpu_place(name, number) for number in numbers]

    def replace_rows(self, rows: Mapping[int, Sequence[int]]) -> None:
        """Set what is free on these rows, after something was taken from copies of them."""
        for row, free in rows.items():
            self._free[row] = free
        self._mark_changed(list(rows))
        self.feasible.clear()

    @property
    def part_worth(self) -> PartWorth:
        """What a part of a GPU is worth."""
        return float if self.worth is None else self.worth.part

    def release(self, parts: Iterable[Allocation]) -> None:
        """Give back what was taken, as far as its places still exist."""
        if self._add([part for part in parts if part[0] in self.nodes.row_of], 1):
            self.infeasible.clear()
            self.feasible.clear()
            self.room_limits.clear()
            self._sums.clear()
            self._candidates.clear()
            self._free_as_floats = None

    def reserve(self, parts: Iterable[Allocation]) -> None:
        """Reserve resources, including ones that are not free yet: free amounts may become negative."""
        if self._add(parts, -1):
            self.feasible.clear()

    def release_all(self, placed: Mapping[Replica, str], demands: Sequence[Demand]) -> None:
        """Give back a whole placement."""
        self.release(self.nodes.held_by(demands, placed))

    def _add(self, parts: Iterable[Allocation], sign: int) -> bool:
        """Add these amounts, or subtract them; return whether there are any."""
        rows: list[int] = []
        for place, amounts, times in parts:
            each = self._row(amounts)
            if each is not None:
                row = self.nodes.row_of[place]
                self._free[row] += each * (times * sign)
                rows.append(row)
        if rows:
            self._mark_changed(rows)
        return bool(rows)

    def _mark_changed(self, rows: Sequence[int]) -> None:
        if self.nodes.layout.vgpus is not None:
            self.nodes.layout.vgpus.settle_rows(self._free, rows)
        if not self._changed_rows:  # these sets may be the inventory's, as in `of_capacity`
            self.infeasible, self.feasible = self.infeasible.copy(), self.feasible.copy()
        self._changed_rows += rows

    def _has_room(self, rows: Amounts, amounts: Amounts) -> bool:
        """Whether each row has these amounts. Of vGPUs that are free, it must have as many as there are free GPUs."""
        left, vgpus = self._free[rows] - amounts, self.nodes.layout.vgpus
        is_short = (left < 0) & (amounts > 0)
        if vgpus is None:
            return not is_short.any()
        is_short[:, list(vgpus.used)] = False
        needs_vgpu = (amounts[:, list(vgpus.shares)] > 0).any(axis=1)
        return not is_short.any() and all(
            vgpus.is_sound(free, taken)
            for free, taken in zip(left[needs_vgpu].tolist(), amounts[needs_vgpu].tolist(), strict=True)
        )

    def _refreshed(self, cached: tuple[Array, int], compute: Callable[[Amounts], Array]) -> Array:
        values, version = cached
        rows = self._rows_changed_since(version)
        refreshed = values.copy()
        refreshed[rows] = compute(rows)
        return refreshed

    def _rows_changed_since(self, version: int) -> Amounts:
        return np.array(list(set(self._changed_rows[version:])), np.int64)

    def _row(self, wanted: Resources) -> Amounts | None:
        """Convert amounts to a row; None if one of the resources is on no node. Cached, as the same amounts are used
        many times.
        """
        key = tuple(wanted.items())
        try:
            return self._rows_of[key]
        except KeyError:
            lacking = any(amount > 0 and self.nodes.column(name) is None for name, amount in key)
            row = self._rows_of[key] = None if lacking else self.nodes.known_row(wanted)
            return row
