"""What one replica asks of a node, as numbers by column."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Amounts = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

PLENTY = np.iinfo(np.int64).max
"""The room for replicas that ask for nothing."""
LIGHTEST = 1e-9
"""What weighs nothing still has to be somewhere."""


class Ask:
    """What one replica of a demand asks of a row. The same one for all demands that ask the same of the same nodes."""

    __slots__ = ("columns", "mask", "possible", "row", "weight")

    def __init__(self, row: Amounts, mask: Mask, scarcest: Sequence[int], *, possible: bool) -> None:
        self.row = row
        """By column."""
        self.mask = mask
        """Where it may run."""
        self.columns = [(column, int(row[column])) for column in scarcest if row[column] > 0]
        self.possible = possible
        """False when it asks for what no node has."""
        self.weight = LIGHTEST
        """How much of the roomiest node it takes; a thousand times that if it asks for accelerators."""

    def room(self, free: Amounts, mask: Mask) -> Amounts:
        """How many of it each of these rows takes."""
        if not self.possible:
            return np.zeros(len(free), np.int64)
        if not self.columns:
            return np.where(mask, PLENTY, 0)
        column, amount = self.columns[0]
        return self.room_among(free, ((free[:, column] >= amount) & mask).nonzero()[0])

    def times(self, free: Sequence[int]) -> int:
        """How often it goes into what one node, on which it may run, has by column: plain numbers are quicker there."""
        if not self.possible:
            return 0
        return max(0, min((free[column] // amount for column, amount in self.columns), default=int(PLENTY)))

    def room_among(self, free: Amounts, rows: Amounts) -> Amounts:
        """The same where only these rows may have any: often few, as what is scarcest is gone on all others."""
        room = np.zeros(len(free), np.int64)
        room[rows] = self._room_on(free, rows)
        return room

    def room_of_few(self, free: Amounts, mask: Mask) -> Amounts:
        """As `room`, without a look first at which of the rows have any."""
        if not self.columns or not self.possible:
            return self.room(free, mask)
        return self._room_on(free, slice(None)) * mask

    def _room_on(self, free: Amounts, rows: Amounts | slice[None]) -> Amounts:
        (column, amount), *others = self.columns
        there: Amounts = free[rows, column] // amount
        for column, amount in others:
            np.minimum(there, free[rows, column] // amount, out=there)
        return np.maximum(there, 0, out=there)
