"""What one replica requests of a node, as numbers by column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Amounts = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

UNLIMITED_ROOM = np.iinfo(np.int64).max
"""The room on a node for replicas that request nothing."""
ROOM_CAP = 2**40
"""Room per node is capped to this where it is added up: more than any gang needs, and no sum overflows."""
MIN_WEIGHT = 1e-9
"""The weight of a request for nothing: such replicas have to be placed as well."""


class EligibleRows(NamedTuple):
    """A mask of rows, and a number by which tables of results can be keyed: equal sets of nodes have the same one."""

    number: int
    mask: Mask


class NodeRequest:
    """What a replica of a demand requests of a node. Demands with equal requests of the same nodes share one object."""

    __slots__ = ("columns", "is_possible", "mask", "mask_number", "most_on_empty_node", "row", "weight")

    def __init__(self, row: Amounts, eligible: EligibleRows, scarcest: Sequence[int], *, possible: bool) -> None:
        self.row = row
        """The requested amounts, by column."""
        self.mask = eligible.mask
        self.mask_number = eligible.number
        self.columns = [(column, int(row[column])) for column in scarcest if row[column] > 0]
        self.is_possible = possible
        """Whether the nodes have all requested resources at all."""
        self.most_on_empty_node = int(UNLIMITED_ROOM)
        """How many replicas the roomiest node takes when it is empty."""
        self.weight = MIN_WEIGHT
        """The part of the largest node that it takes; a thousand times that if it requests accelerators."""

    def room(self, free: Amounts, mask: Mask) -> Amounts:
        """How many replicas each of these rows takes."""
        if not self.is_possible:
            return np.zeros(len(free), np.int64)
        if not self.columns:
            return np.where(mask, UNLIMITED_ROOM, 0)
        column, amount = self.columns[0]
        return self.room_on_rows(free, ((free[:, column] >= amount) & mask).nonzero()[0])

    def times_in(self, free: Sequence[int]) -> int:
        """How often the request fits one eligible node's free amounts, by column. Plain numbers are quicker than arrays
        here.
        """
        if not self.is_possible:
            return 0
        return max(0, min((free[column] // amount for column, amount in self.columns), default=int(UNLIMITED_ROOM)))

    def room_on_rows(self, free: Amounts, rows: Amounts) -> Amounts:
        """Do as `room`, where only these rows may have any. Often they are few, as the scarcest resource is used up on
        all others.
        """
        room = np.zeros(len(free), np.int64)
        room[rows] = self._room_on(free, rows)
        return room

    def room_without_preselection(self, free: Amounts, mask: Mask) -> Amounts:
        """Do as `room`, without first selecting the rows that have any."""
        if not self.columns or not self.is_possible:
            return self.room(free, mask)
        return self._room_on(free, slice(None)) * mask

    def _room_on(self, free: Amounts, rows: Amounts | slice[None]) -> Amounts:
        (column, amount), *others = self.columns
        room: Amounts = free[rows, column] // amount
        for column, amount in others:
            np.minimum(room, free[rows, column] // amount, out=room)
        return np.maximum(room, 0, out=room)
