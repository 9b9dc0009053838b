"""What one replica requests of a node, as numbers by column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tarragon.scheduling.api.gpu_shares import VgpuShare
from tarragon.scheduling.state.vgpus import PartWorth, VgpuColumns

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


class GpuRequest(NamedTuple):
    """The share of a GPU that a replica requests, if any, and where the table of nodes has its vGPUs, if any."""

    share: VgpuShare | None = None
    columns: VgpuColumns | None = None


class NodeRequest:
    """What a replica of a demand requests of a node. Demands with equal requests of the same nodes share one object."""

    __slots__ = (
        "_amounts",
        "columns",
        "costs",
        "is_possible",
        "mask",
        "mask_number",
        "most_on_empty_node",
        "reads",
        "row",
        "share",
        "vgpus",
        "weight",
    )

    def __init__(
        self, row: Amounts, eligible: EligibleRows, scarcest: Sequence[int], *, possible: bool, gpus: GpuRequest
    ) -> None:
        self.row = row
        """The requested amounts, by column. The share of a GPU is not among them: which columns it takes depends on the
        vGPU.
        """
        self.mask = eligible.mask
        self.mask_number = eligible.number
        self.share, self.vgpus = gpus.share, gpus.columns
        derived = () if self.vgpus is None else (self.vgpus.unshared,)
        self.columns = [(column, int(row[column])) for column in scarcest if row[column] > 0 and column not in derived]
        """The requested amounts of each column that is requested."""
        self._amounts = [(column, amount) for column, amount in enumerate(row.tolist()) if amount]
        """The same, with the columns that are computed from others."""
        self.is_possible = possible
        """Whether the nodes have all requested resources at all."""
        self.most_on_empty_node = int(UNLIMITED_ROOM)
        """How many replicas the roomiest node takes when it is empty."""
        self.weight = MIN_WEIGHT
        """The part of the largest node that it takes; a thousand times that if it requests accelerators."""
        self.costs, self.reads = list(self.columns), [column for column, _ in self.columns]
        """What counts when resources are divided in total, with the share as a fraction of a GPU; and the columns that
        the room depends on.
        """
        if self.vgpus is not None and (self.share is not None or row[self.vgpus.free] > 0):
            needed = (self.vgpus.unshared, *self.vgpus.shares) if self.share is None else self.vgpus.read_by(self.share)
            self.reads += [column for column in needed if column not in self.reads]
            if self.share is not None:
                self.costs.insert(0, (self.vgpus.free, self.share.request))
        else:
            self.vgpus = None

    def room(self, free: Amounts, mask: Mask) -> Amounts:
        """How many replicas each of these rows takes."""
        if not self.is_possible:
            return np.zeros(len(free), np.int64)
        if not self.columns:
            return self.room_without_preselection(free, mask)
        column, amount = self.columns[0]
        return self.room_on_rows(free, ((free[:, column] >= amount) & mask).nonzero()[0])

    def times_in(self, free: Sequence[int]) -> int:
        """How often the request fits one eligible node's free amounts, by column. Plain numbers are quicker than arrays
        here. The amount of free GPUs is computed from the others.
        """
        if not self.is_possible:
            return 0
        if self.vgpus is None:
            return max(0, min((free[column] // amount for column, amount in self.columns), default=int(UNLIMITED_ROOM)))
        gpus = self.vgpus.free
        times = [free[column] // amount for column, amount in self.columns if column != gpus]
        times.append(
            self.vgpus.free_gpus_in(free) // int(self.row[gpus])
            if self.share is None
            else self.vgpus.times_in(self.share, free)
        )
        return max(0, min(times))

    def take_from(self, free: list[int], count: int, worth: PartWorth) -> list[int]:
        """Take so many replicas from one node's free amounts, and return their vGPUs if they need a share: fewer if
        there is no room for all.
        """
        numbers: list[int] = []
        for column, amount in self._amounts:
            free[column] -= amount * count
        if self.share is not None and self.vgpus is not None:
            for _ in range(count):
                number = self.vgpus.choose(self.share, free, worth)
                if number is None:
                    break
                self.vgpus.take(self.share, free, number)
                numbers.append(number)
        return numbers

    def taken_from(self, free: Amounts, counts: Amounts, worth: PartWorth) -> Amounts:
        """Return these rows after each has given room to so many replicas."""
        if self.share is None:
            left = self.taken_beside_gpus(free, counts)
            if self.vgpus is not None:
                self.vgpus.settle(left)
            return left
        rows: list[list[int]] = free.tolist()
        for row, count in zip(rows, counts.tolist(), strict=True):
            if count:
                self.take_from(row, count, worth)
        return np.array(rows, np.int64).reshape(free.shape)

    def taken_beside_gpus(self, free: Amounts, counts: Amounts) -> Amounts:
        """Do as `taken_from`, but leave the GPUs as they are. That is quick, and enough where only requests without
        GPUs follow.
        """
        left: Amounts = free - counts[:, None] * self.row
        return left

    def room_on_rows(self, free: Amounts, rows: Amounts) -> Amounts:
        """Do as `room`, where only these rows may have any. Often they are few, as the scarcest resource is used up on
        all others.
        """
        room = np.zeros(len(free), np.int64)
        room[rows] = self._room_on(free, rows)
        return room

    def room_without_preselection(self, free: Amounts, mask: Mask) -> Amounts:
        """Do as `room`, without first selecting the rows that have any."""
        if not self.is_possible:
            return np.zeros(len(free), np.int64)
        return self._room_on(free, slice(None)) * mask

    def room_of(self, column: Callable[[int], Amounts]) -> Amounts:
        """How many replicas rows take whose free amounts this returns by column, for those in `reads`. The amount of
        free GPUs is computed from the others. May be negative.
        """
        gpus = -1 if self.vgpus is None else self.vgpus.free
        times = [column(each) // amount for each, amount in self.columns if each != gpus]
        if self.vgpus is not None:
            times.append(
                self.vgpus.free_gpus(column) // int(self.row[gpus])
                if self.share is None
                else self.vgpus.room(self.share, column)
            )
        room, *others = times
        for other in others:
            room = np.minimum(room, other)
        return room

    def _room_on(self, free: Amounts, rows: Amounts | slice[None]) -> Amounts:
        if not self.columns and self.share is None:
            return np.full(len(free[rows]), UNLIMITED_ROOM)
        if self.share is not None:
            some = free.T[:, rows]  # All columns at once: that takes as long as for one or two of them.
            return np.maximum(self.room_of(some.__getitem__), 0)
        (column, amount), *others = self.columns
        room: Amounts = free[rows, column] // amount
        for column, amount in others:
            np.minimum(room, free[rows, column] // amount, out=room)
        return np.maximum(room, 0, out=room)
