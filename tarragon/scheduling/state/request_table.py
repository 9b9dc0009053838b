"""The node requests of all demands that were seen on one cluster layout, each distinct request once."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Sequence

import numpy as np

from tarragon.base.resources import NVIDIA_GPU
from tarragon.scheduling.api.gpu_shares import VgpuShare
from tarragon.scheduling.api.snapshot import Demand, DomainMap
from tarragon.scheduling.state.capacity_index import CapacityIndex
from tarragon.scheduling.state.gpu_worth import GpuWorth, WorthColumns, kinds_of
from tarragon.scheduling.state.inventory import MAX_AMOUNT, Inventory, Layout
from tarragon.scheduling.state.node_requests import MIN_WEIGHT, Amounts, EligibleRows, GpuRequest, NodeRequest

_MAX_REQUESTS = 4096
"""The number of masks and requests at which these caches are cleared: jobs come and go for months."""


_MAX_WORTHS = 16
"""The same for the worths of free resources: one changes slowly."""


class RequestTable:
    """A cache: what it returns depends on its arguments and on the layout alone."""

    def __init__(self, nodes: Inventory) -> None:
        self._nodes = nodes
        """Only the layout is used."""
        self.places: Container[str] = nodes.row_of
        """The nodes, and the places on their vGPUs."""
        self._masks: dict[frozenset[str], EligibleRows] = {}
        self._requests: dict[Hashable, NodeRequest] = {}
        self._domain_numbers: dict[DomainMap, tuple[Amounts, Sequence[str]]] = {}
        self.capacity_index = CapacityIndex()
        self.worth_columns = WorthColumns.of(nodes.layout)
        self._worths: dict[Hashable, GpuWorth] = {}
        self.was_cleared = False
        """Whether there were too many requests. Others may hold some that are not counted any more."""
        self.total_capacity = [max(1.0, float(total)) for total in nodes.capacity.sum(axis=0, dtype=float)]
        """The capacity of all nodes, by column; at least 1."""

    def of(self, demand: Demand) -> NodeRequest:
        """The node request of a demand: looked up by shape, then by what it requests of which nodes."""
        cached = self._requests.get(demand.shape_key)
        return self._add(demand) if cached is None else cached

    def worth_for(self, requests: Iterable[tuple[NodeRequest, int]]) -> GpuWorth | None:
        """What free resources are worth to so many of these requests; None if GPUs are not shared, or not requested."""
        kinds = {} if self.worth_columns is None else kinds_of(requests, self.worth_columns)
        key = tuple(kinds.items())
        if kinds and key not in self._worths:
            if len(self._worths) >= _MAX_WORTHS:
                self._worths.clear()
            self._worths[key] = GpuWorth(kinds)
        return self._worths.get(key)

    def domain_numbers(self, domains: DomainMap) -> tuple[Amounts, Sequence[str]]:
        """The number of each row's domain, -1 without one; and the domains by number, including those of other
        nodes.
        """
        cached = self._domain_numbers.get(domains)
        if cached is None:
            if len(self._domain_numbers) >= _MAX_REQUESTS:
                self._domain_numbers.clear()
            names = sorted(set(domains.values()))
            numbers: dict[str | None, int] = {name: number for number, name in enumerate(names)}
            rows = self._nodes.names
            by_row = np.fromiter((numbers.get(domains.get(name), -1) for name in rows), np.int64, len(rows))
            cached = self._domain_numbers[domains] = by_row, names
        return cached

    def _add(self, demand: Demand) -> NodeRequest:
        if len(self._requests) >= _MAX_REQUESTS:
            self._requests.clear()
            self.capacity_index.clear()
            self.was_cleared = True
        share = demand.share
        each = frozenset(
            (name, amount)
            for name, amount in demand.resources.items()
            if amount > 0 and (share is None or name != NVIDIA_GPU)
        )
        key = (each, share, demand.eligible_nodes)
        request = self._requests.get(key)
        if request is None:
            layout = self._nodes.layout
            possible = all(name in layout.columns and amount <= MAX_AMOUNT for name, amount in each)
            possible = possible and (share is None or _is_possible(share, layout))
            row = self._nodes.known_row(dict(each))
            request = self._requests[key] = NodeRequest(
                row,
                self.eligible_rows(demand.eligible_nodes),
                layout.scarcest,
                possible=possible,
                gpus=GpuRequest(share, layout.vgpus),
            )
            request.weight = self._weight(request)
            request.most_on_empty_node = int(request.room(self._nodes.capacity, request.mask).max(initial=0))
            self.capacity_index.add(request)
        self._requests[demand.shape_key] = request
        return request

    def eligible_rows(self, eligible: frozenset[str]) -> EligibleRows:
        """The eligible rows, cached because thousands of gangs may be eligible for the same nodes."""
        rows = self._masks.get(eligible)
        if rows is None:
            if len(self._masks) >= _MAX_REQUESTS:
                self._masks.clear()
            rows = self._masks[eligible] = EligibleRows(hash(eligible), self._nodes.mask(eligible))
        return rows

    def _weight(self, request: NodeRequest) -> float:
        layout = self._nodes.layout
        shares = [
            amount / layout.largest[column] * (1000.0 if "/" in layout.resources[column] else 1.0)
            for column, amount in request.costs
        ]
        return max(shares, default=MIN_WEIGHT)


def _is_possible(share: VgpuShare, layout: Layout) -> bool:
    vgpus = layout.vgpus
    return (
        vgpus is not None and (share.memory is None or share.memory <= MAX_AMOUNT) and vgpus.can_mark(share.constraints)
    )
