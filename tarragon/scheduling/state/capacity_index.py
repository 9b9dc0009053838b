"""Counts for how many replicas there is room in total, for all known node requests at once.

This number alone tells that there is too little for nearly all waiting gangs. Counting from scratch looks at every node
for every request; few nodes change between cycles, so only these are counted again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tarragon.scheduling.api.gpu_shares import VgpuShare
from tarragon.scheduling.state.node_requests import ROOM_CAP, Amounts, EligibleRows, NodeRequest
from tarragon.scheduling.state.vgpus import VgpuColumns

_FULL_COUNT_PART = 4
"""If more than one in this many nodes has changed, all are counted again."""


@dataclass(frozen=True, slots=True, eq=False)
class _Amounts:
    """What requests have of some columns, each distinct combination once: most requests have one of a few."""

    columns: Sequence[tuple[int, Amounts, Amounts]]
    """For each column its index, the amount of each combination (at least 1), and the cap where that amount is 0."""
    index: Amounts
    """The combination of each request."""
    shares: Sequence[VgpuShare] = ()
    """Combinations that follow those of the columns: requests for shares of GPUs."""
    vgpus: VgpuColumns | None = None
    """None if there are no shares."""

    @classmethod
    def of(cls, requests: Sequence[NodeRequest], columns: Sequence[int]) -> _Amounts:
        amounts = np.array([request.row[columns] for request in requests], np.int64)
        distinct, index = np.unique(amounts, axis=0, return_inverse=True)
        parts = [
            (column, np.maximum(amount, 1)[:, None], np.where(amount, 0, ROOM_CAP)[:, None])
            for column, amount in zip(columns, distinct.T, strict=True)
        ]
        vgpus = next((request.vgpus for request in requests if request.share is not None), None)
        if vgpus is None or vgpus.free not in columns:
            return cls(parts, index)
        shares = list(dict.fromkeys(request.share for request in requests if request.share is not None))
        number_of = {share: number for number, share in enumerate(shares, len(distinct))}
        for position, request in enumerate(requests):
            if request.share is not None:
                index[position] = number_of[request.share]
        return cls(parts, index, shares, vgpus)

    def room(self, free: Amounts) -> Amounts:
        """How many replicas of each combination each row takes."""
        (column, amounts, cap), *others = self.columns
        room: Amounts = free[:, column].clip(min=0) // amounts + cap
        for column, amounts, cap in others:
            np.minimum(room, free[:, column].clip(min=0) // amounts + cap, out=room)
        if self.vgpus is not None:
            room = np.concatenate([room, self.vgpus.rooms(self.shares, lambda column: free[:, column])])
        return room


@dataclass(frozen=True, slots=True, eq=False)
class _Tables:
    """All requests as tables, each distinct amount and each distinct set of eligible nodes once."""

    most: Amounts
    """A row for each set of nodes: the cap on these nodes, 0 elsewhere."""
    most_of: Amounts
    """The row of each request in `most`."""
    amounts: Sequence[_Amounts]


@dataclass(frozen=True, slots=True, eq=False)
class RequestTotals:
    """The total room for each request, on nodes with these free amounts."""

    requests: Sequence[NodeRequest]
    free: Amounts
    totals: Amounts
    by_request: Mapping[NodeRequest, int]
    """The totals by request. Requests that were added since are missing."""


class CapacityIndex:
    """All requests that were made of one cluster's nodes, with their last totals."""

    def __init__(self) -> None:
        self.requests: list[NodeRequest] = []
        self.last_free: RequestTotals | None = None
        """The totals for what was free at the beginning of the last cycle."""
        self.last_with_reclaimable: RequestTotals | None = None
        """The totals for the case that all reclaimable resources are given back."""
        self.last_divisible: RequestTotals | None = None
        """The totals for the case that all gangs whose size is decided have ended."""
        self._tables: _Tables | None = None

    def add(self, request: NodeRequest) -> None:
        self.requests.append(request)
        self._tables = None

    def clear(self) -> None:
        self.requests, self._tables = [], None

    def count_totals(self, free: Amounts, before: RequestTotals | None, rows: Amounts | None = None) -> RequestTotals:
        """Return the totals for these free amounts, updated from earlier ones where that is quicker. The table must not
        change afterwards. `rows` are those that may have changed, if that is known.
        """
        totals, by_request = np.zeros(0, np.int64), dict[NodeRequest, int]()
        if before is not None and before.requests is self.requests:
            if rows is None:
                rows = np.flatnonzero((before.free != free).any(axis=1))
            if len(rows) * _FULL_COUNT_PART <= len(free):
                difference = self._difference(rows, free[rows], before.free[rows])[: len(before.totals)]
                totals = before.totals + difference
                by_request = dict(before.by_request)
                for changed in np.flatnonzero(difference).tolist():
                    by_request[self.requests[changed]] = int(totals[changed])
        new = [_room(request, free) for request in self.requests[len(totals) :]]
        by_request.update(zip(self.requests[len(totals) :], new, strict=True))
        return RequestTotals(self.requests, free, np.concatenate([totals, np.array(new, np.int64)]), by_request)

    def _difference(self, rows: Amounts, free: Amounts, before: Amounts) -> Amounts:
        """Return the additional room for each request if the free amounts of these rows change from
        `before` to `free`.
        """
        if not len(rows) or not self.requests:
            return np.zeros(len(self.requests), np.int64)
        if self._tables is None:
            self._tables = _tables(self.requests)
        both = np.concatenate([free, before])
        room = self._tables.most[:, np.concatenate([rows, rows])][self._tables.most_of]
        for amounts in self._tables.amounts:
            np.minimum(room, amounts.room(both)[amounts.index], out=room)
        more: Amounts = room[:, : len(rows)].sum(axis=1) - room[:, len(rows) :].sum(axis=1)
        return more


def _tables(requests: Sequence[NodeRequest]) -> _Tables:
    nowhere = EligibleRows(-1, np.zeros_like(requests[0].mask))
    masks = [
        EligibleRows(request.mask_number, request.mask) if request.is_possible else nowhere for request in requests
    ]
    distinct = dict(masks)
    positions = {number: position for position, number in enumerate(distinct)}
    table = np.array([request.row for request in requests], np.int64)
    vgpus = next((request.vgpus for request in requests if request.vgpus is not None), None)
    gpus = [] if vgpus is None else [vgpus.free]
    # How many GPUs nobody holds whole follows from the free ones.
    derived = [] if vgpus is None else [vgpus.unshared]
    others = [column for column in np.flatnonzero(table.any(axis=0)).tolist() if column not in (*gpus, *derived)]
    return _Tables(
        np.where(np.array(list(distinct.values())), ROOM_CAP, 0),
        np.array([positions[number] for number, _ in masks], np.int64),
        [_Amounts.of(requests, columns) for columns in (gpus, others) if columns],
    )


def _room(request: NodeRequest, free: Amounts) -> int:
    return int(np.minimum(request.room(free, request.mask), ROOM_CAP).sum())
