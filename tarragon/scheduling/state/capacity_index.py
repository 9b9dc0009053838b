"""Counts for how many replicas there is room in total, for all known node requests at once.

This number alone tells that there is too little for nearly all waiting gangs. Counting from scratch looks at every node
for every request; few nodes change between cycles, so only these are counted again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tarragon.scheduling.api.gpu_shares import VgpuShare
from tarragon.scheduling.state.node_requests import ROOM_CAP, Amounts, EligibleRows, NodeRequest
from tarragon.scheduling.state.vgpus import VgpuColumns

_FULL_COUNT_PART = 4
"""If more than one in this many nodes has changed, all are counted again."""


@dataclass(slots=True)
class _Tables:
    """All requests as tables, each distinct amount and each distinct set of eligible nodes once."""

    most: Amounts
    """A row for each set of nodes: the cap on these nodes, 0 elsewhere."""
    most_of: Amounts
    """The row of each request in `most`."""
    amounts: Sequence[tuple[int, Amounts, Amounts, Amounts]]
    """For each column that is requested: its index; the distinct amounts, at least 1; the cap where the amount is 0;
    and for each request the index of its amount.
    """
    shares: tuple[Amounts, Sequence[VgpuShare], Amounts]
    """The indexes of the requests for shares of GPUs, the distinct shares, and for each of these requests the index of
    its share.
    """
    vgpus: VgpuColumns | None
    """None if no request is for a share."""


@dataclass(frozen=True, slots=True, eq=False)
class RequestTotals:
    """The total room for each request, on nodes with these free amounts."""

    requests: Sequence[NodeRequest]
    free: Amounts
    totals: Amounts

    def by_request(self) -> dict[NodeRequest, int]:
        """Return the totals by request. Requests that were added since are missing."""
        return dict(zip(self.requests, self.totals.tolist(), strict=False))


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

    def count_totals(self, free: Amounts, before: RequestTotals | None) -> RequestTotals:
        """Return the totals for these free amounts, updated from earlier ones where that is quicker. The table must not
        change afterwards.
        """
        totals = np.zeros(0, np.int64)
        if before is not None and before.requests is self.requests:
            rows = np.flatnonzero((before.free != free).any(axis=1))
            if len(rows) * _FULL_COUNT_PART <= len(free):
                count = len(before.totals)
                totals = before.totals + self._difference(rows, free[rows], before.free[rows])[:count]
        new = [_room(request, free) for request in self.requests[len(totals) :]]
        return RequestTotals(self.requests, free, np.concatenate([totals, np.array(new, np.int64)]))

    def _difference(self, rows: Amounts, free: Amounts, before: Amounts) -> Amounts:
        """Return the additional room for each request if the free amounts of these rows change from
        `before` to `free`.
        """
        if not len(rows) or not self.requests:
            return np.zeros(len(self.requests), np.int64)
        if self._tables is None:
            self._tables = _tables(self.requests)
        unclipped = np.concatenate([free, before])
        both = unclipped.clip(min=0)
        room = self._tables.most[:, np.concatenate([rows, rows])][self._tables.most_of]
        for column, amounts, cap, index in self._tables.amounts:
            room_by_amount = both[:, column] // amounts
            room_by_amount += cap
            np.minimum(room, room_by_amount[index] if len(room_by_amount) > 1 else room_by_amount, out=room)
        if self._tables.vgpus is not None:
            indexes, shares, of_share = self._tables.shares
            rooms = self._tables.vgpus.rooms(shares, lambda column: unclipped[:, column])
            room[indexes] = np.minimum(room[indexes], rooms[of_share])
        more: Amounts = room[:, : len(rows)].sum(axis=1) - room[:, len(rows) :].sum(axis=1)
        return more


def _tables(requests: Sequence[NodeRequest]) -> _Tables:
    nowhere = EligibleRows(-1, np.zeros_like(requests[0].mask))
    masks = [
        EligibleRows(request.mask_number, request.mask) if request.is_possible else nowhere for request in requests
    ]
    distinct = dict(masks)
    positions = {number: position for position, number in enumerate(distinct)}
    columns = np.array([request.row for request in requests], np.int64).T
    sharing = [(index, request.share) for index, request in enumerate(requests) if request.share is not None]
    shares = list(dict.fromkeys(share for _, share in sharing))
    number_of = {share: number for number, share in enumerate(shares)}
    uniques = [np.unique(column, return_inverse=True) for column in columns]
    return _Tables(
        np.where(np.array(list(distinct.values())), ROOM_CAP, 0),
        np.array([positions[number] for number, _ in masks], np.int64),
        [
            (column, np.maximum(amounts, 1)[:, None], np.where(amounts, 0, ROOM_CAP)[:, None], index)
            for column, (amounts, index) in enumerate(uniques)
            if amounts.any()
        ],
        (
            np.array([index for index, _ in sharing], np.int64),
            shares,
            np.array([number_of[share] for _, share in sharing], np.int64),
        ),
        next((request.vgpus for request in requests if request.share is not None), None),
    )


def _room(request: NodeRequest, free: Amounts) -> int:
    return int(np.minimum(request.room(free, request.mask), ROOM_CAP).sum())
