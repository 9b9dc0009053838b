"""Shared GPUs as columns of the table of nodes.

Each vGPU has two columns, its share and its memory, with what pods hold of it as negative numbers: zero is a vGPU
that nobody uses. So all amounts of a table can be added up, as those of other resources. The first share opens a vGPU,
and takes a whole GPU from those that are free; the last one closes it. The number of free GPUs is therefore computed
after each change: those that no pod holds whole, less the open vGPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tarragon.base.resources import GPU_MEMORY, NVIDIA_GPU, WHOLE_GPU, vgpu_memory, vgpu_share
from tarragon.scheduling.api.gpu_shares import VgpuShare

SHAREABLE_GPUS = f"{NVIDIA_GPU}/shareable"
"""The resource with the GPUs of a node that pods may share: all of them, or none."""
UNSHARED_GPUS = f"{NVIDIA_GPU}/unshared"
"""The resource with the GPUs of a node that no pod holds whole: free ones and shared ones."""
ONE_GPU = 1000
"""One GPU in the columns of whole GPUs."""
FULL = WHOLE_GPU * 1000
"""A whole GPU in the columns of shares: thousandths of thousandths of a GPU."""

Amounts = npt.NDArray[np.int64]
MAX_MEMORY = 2**61
"""More memory than any GPU has, in thousandths of bytes; sums of two do not overflow."""
T = TypeVar("T", int, Amounts)
PartWorth = Callable[[int], float]
"""What a part of a GPU is worth, by thousandths."""
UNUSED_GPU = 1.1
"""The worth of a GPU that nobody uses, in those of one of which all is left although it is shared."""
Lookup = Callable[[int], Amounts]
"""Returns a column of a table, or of some of its rows."""


@dataclass(frozen=True, slots=True, eq=False)
class VgpuColumns:
    """Where the table of nodes has its GPUs. A table without vGPUs has none of this."""

    free: int
    """The column of GPUs that are free: neither held whole nor shared."""
    unshared: int
    gpu_memory: int
    """The column with the memory of each GPU of a node."""
    shareable: int
    """The column with the number of vGPUs that a node may have."""
    shares: tuple[int, ...]
    """The columns of the shares, by number of the vGPU."""
    memories: tuple[int, ...]

    @property
    def all(self) -> Sequence[int]:
        """The columns on which the room for whole GPUs and for shares depends."""
        return self.unshared, self.gpu_memory, self.shareable, *self.shares, *self.memories

    @classmethod
    def of(cls, columns: Mapping[str, int]) -> VgpuColumns | None:
        numbers = range(len(columns))
        shares = tuple(columns[vgpu_share(number)] for number in numbers if vgpu_share(number) in columns)
        if not shares:
            return None
        memories = tuple(columns[vgpu_memory(number)] for number in range(len(shares)))
        return cls(
            columns[NVIDIA_GPU],
            columns[UNSHARED_GPUS],
            columns[GPU_MEMORY],
            columns[SHAREABLE_GPUS],
            shares,
            memories,
        )

    # ------------------------------------------------------------------------------------------------------- whole GPUs

    def free_gpus(self, column: Lookup) -> Amounts:
        """Compute how many GPUs are free."""
        used = np.stack([column(share) for share in self.shares])
        free: Amounts = column(self.unshared) - ONE_GPU * np.count_nonzero(used < 0, axis=0)
        return free

    def free_gpus_in(self, free: Sequence[int]) -> int:
        """Do as `free_gpus`, for one row as plain numbers."""
        return free[self.unshared] - ONE_GPU * sum(free[share] < 0 for share in self.shares)

    def settle(self, table: Amounts) -> None:
        """Compute the column of free GPUs anew, after other columns of the table have changed."""
        table[:, self.free] = self.free_gpus(lambda column: table[:, column])

    def settle_rows(self, table: Amounts, rows: Sequence[int]) -> None:
        """Do as `settle`, for these rows only."""
        some = table[rows]
        table[rows, self.free] = self.free_gpus(lambda column: some[:, column])

    def fractions(self, table: Amounts) -> Amounts:
        """Return what is left of each row's open vGPUs, as a fraction of a GPU."""
        used = table[:, list(self.shares)]
        left: Amounts = np.where(used < 0, (FULL + used) * ONE_GPU // FULL, 0).sum(axis=1)
        return left

    def gpus_in(self, amounts: Amounts) -> int:
        """Return the shares in these amounts, by column, as a fraction of a GPU."""
        return int(amounts[list(self.shares)].sum()) * ONE_GPU // FULL

    # ----------------------------------------------------------------------------------------------------------- shares

    def room(self, share: VgpuShare, column: Lookup) -> Amounts:
        """How many replicas with this share each row takes."""
        room: Amounts = self.rooms([share], column)[0]
        return room

    def rooms(self, shares: Sequence[VgpuShare], column: Lookup) -> Amounts:
        """Do as `room` for several shares, a row for each: few calls of numpy, as there may be few rows."""
        gpu_memory, free_gpus = column(self.gpu_memory), self.free_gpus(column)
        requests = np.array([share.request for share in shares], np.int64)
        memory = np.stack([memory_of_gpus(share, gpu_memory) for share in shares])
        limits = np.where(memory > 0, gpu_memory // np.maximum(memory, 1), WHOLE_GPU)
        total: Amounts = np.minimum(WHOLE_GPU // requests[:, np.newaxis], limits) * (free_gpus // ONE_GPU)
        used = np.stack([column(each) for each in self.shares], axis=1)
        opened = np.flatnonzero((used < 0).any(axis=0)).tolist()
        if opened:
            used = used[:, opened]
            left = np.where(used < 0, left_of(used), 0)
            memory_left = gpu_memory[:, np.newaxis] + np.stack(
                [column(self.memories[number]) for number in opened], axis=1
            )
            times = left // requests[:, np.newaxis, np.newaxis]
            needs_memory = memory > 0
            if needs_memory.any():
                by_memory = memory_left // np.maximum(memory, 1)[:, :, np.newaxis]
                times = np.where(needs_memory[:, :, np.newaxis], np.minimum(times, by_memory), times)
            total += np.maximum(times, 0).sum(axis=2)
        # Of a node with less than none, an open vGPU has no GPU yet: it is reserved, or its GPU is lost.
        total[:, (free_gpus < 0) | (column(self.shareable) <= 0)] = 0
        return total

    def times_in(self, share: VgpuShare, free: Sequence[int]) -> int:
        """Do as `room`, for one row as plain numbers."""
        gpu_memory = free[self.gpu_memory]
        memory = share.memory_of(gpu_memory)
        closed = min(WHOLE_GPU // share.request, gpu_memory // memory if memory else WHOLE_GPU)
        free_gpus = self.free_gpus_in(free)
        if free_gpus < 0 or free[self.shareable] <= 0:
            return 0
        total = closed * (free_gpus // ONE_GPU)
        for number in range(len(self.shares)):
            if free[self.shares[number]] < 0:
                total += max(0, self._times_on(share, free, number))
        return total

    def choose(self, share: VgpuShare, free: Sequence[int], worth: PartWorth = float) -> int | None:
        """Choose the vGPU of a node for a share: the one that loses least of what its rest is worth. Of equal ones the
        one with least left, and of GPUs that nobody uses the first. None if none takes the share.
        """
        free_gpus = self.free_gpus_in(free)
        if free_gpus < 0:
            return None
        found: tuple[float, int, int] | None = None
        is_unused_seen = free_gpus < ONE_GPU
        for number, column in enumerate(self.shares[: free[self.shareable] // ONE_GPU]):
            is_open = free[column] < 0
            if (not is_open and is_unused_seen) or self._times_on(share, free, number) <= 0:
                continue
            is_unused_seen |= not is_open
            left = left_of(free[column]) if is_open else WHOLE_GPU
            before = worth(left) if is_open else UNUSED_GPU * worth(WHOLE_GPU)
            loss = before - worth(left - share.request), left, number
            if found is None or loss < found:
                found = loss
        return None if found is None else found[2]

    def take(self, share: VgpuShare, free: list[int], number: int) -> None:
        """Take a share of this vGPU from a row of plain numbers."""
        free[self.shares[number]] -= share.request * 1000
        free[self.memories[number]] -= share.memory_of(free[self.gpu_memory])
        free[self.free] = self.free_gpus_in(free)

    def is_sound(self, free: Sequence[int], taken: Sequence[int]) -> bool:
        """Whether the vGPUs of which this was taken are not oversold, nor their memory, and no GPU is held whole and
        shared.
        """
        gpu_memory = free[self.gpu_memory]
        return (
            self.free_gpus_in(free) >= 0
            and all(left_of(free[column]) >= 0 for column in self.shares if taken[column])
            and all(gpu_memory + free[column] >= 0 for column in self.memories if taken[column])
        )

    def _times_on(self, share: VgpuShare, free: Sequence[int], number: int) -> int:
        gpu_memory = free[self.gpu_memory]
        memory = share.memory_of(gpu_memory)
        by_share = left_of(free[self.shares[number]]) // share.request
        return min(by_share, (gpu_memory + free[self.memories[number]]) // memory) if memory else by_share


def memory_of_gpus(share: VgpuShare, gpu_memory: Amounts) -> Amounts:
    """What a share takes of the memory of each row's GPUs."""
    if share.memory is None:
        return gpu_memory // WHOLE_GPU * share.request
    return np.full(len(gpu_memory), min(share.memory, MAX_MEMORY), np.int64)


def left_of(used: T) -> T:
    """What is left of vGPUs, in thousandths. The pod that holds the GPU for them takes less than one."""
    return (FULL + used + 999) // 1000
