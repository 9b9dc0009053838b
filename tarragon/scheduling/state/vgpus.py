"""Shared GPUs as columns of the table of nodes.

Each vGPU has two columns, its share and its memory, with what pods hold of it as negative numbers: zero is a vGPU
that nobody uses. So all amounts of a table can be added up, as those of other resources. The first share opens a vGPU,
and takes a whole GPU from those that are free; the last one closes it. The number of free GPUs is therefore computed
after each change: those that no pod holds whole, less the open vGPUs.

Where pods have constraints on those with whom they share, their marks are further columns of this kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tarragon.base.gpu_constraints import UNCONSTRAINED, GpuConstraints, exclusion_mark, is_mark
from tarragon.base.resources import GPU_MEMORY, NVIDIA_GPU, WHOLE_GPU, vgpu_memory, vgpu_share
from tarragon.scheduling.api.gpu_shares import FULL, ONE_GPU, VgpuShare, left_of, users_of

SHAREABLE_GPUS = f"{NVIDIA_GPU}/shareable"
"""The resource with the GPUs of a node that pods may share: all of them, or none."""
UNSHARED_GPUS = f"{NVIDIA_GPU}/unshared"
"""The resource with the GPUs of a node that no pod holds whole: free ones and shared ones."""

Amounts = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
MAX_MEMORY = 2**61
"""More memory than any GPU has, in thousandths of bytes; sums of two do not overflow."""
T = TypeVar("T", int, Amounts)
PartWorth = Callable[[int], float]
"""What a part of a GPU is worth, by thousandths."""
UNUSED_GPU = 1.1
"""The worth of a GPU that nobody uses, in those of one of which all is left although it is shared."""
_FEW_ROWS = 12
"""Up to so many rows are quicker as plain numbers, at 3 us each: numpy takes 50 us for the smallest array."""
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
    marks: Mapping[str, int] = field(default_factory=dict)
    """The column of each mark; none if no pod has constraints."""

    def read_by(self, share: VgpuShare) -> Sequence[int]:
        """The columns on which the room for a share depends."""
        numbers = range(len(self.shares))
        names = {name for number in numbers for name in (exclusion_mark(number), *share.constraints.marks(number, 1))}
        marks = [column for name, column in self.marks.items() if name in names]
        return self.unshared, self.gpu_memory, self.shareable, *self.shares, *self.memories, *marks

    @property
    def used(self) -> Sequence[int]:
        """The columns with what pods hold of vGPUs, as negative numbers."""
        return *self.shares, *self.memories, *self.marks.values()

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
            {name: column for name, column in columns.items() if is_mark(name)},
        )

    def can_mark(self, constraints: GpuConstraints) -> bool:
        """Whether there is a column for each mark of these constraints."""
        return self.marks.keys() >= constraints.marks(0, 1).keys()

    # ------------------------------------------------------------------------------------------------------- whole GPUs

    def free_gpus(self, column: Lookup) -> Amounts:
        """Compute how many GPUs are free."""
        used = np.array([column(share) for share in self.shares])
        free: Amounts = column(self.unshared) - ONE_GPU * _count(used < 0)
        return free

    def free_gpus_in(self, free: Sequence[int]) -> int:
        """Do as `free_gpus`, for one row as plain numbers."""
        return free[self.unshared] - ONE_GPU * sum(free[share] < 0 for share in self.shares)

    def settle(self, table: Amounts) -> None:
        """Compute the column of free GPUs anew, after other columns of the table have changed."""
        table[:, self.free] = self.free_gpus(lambda column: table[:, column])

    def settle_rows(self, table: Amounts, rows: Sequence[int]) -> None:
        """Do as `settle`, for these rows only."""
        if len(rows) > _FEW_ROWS:
            some = table[rows]
            table[rows, self.free] = self.free_gpus(lambda column: some[:, column])
        else:
            for row in rows:
                table[row, self.free] = self.free_gpus_in(table[row].tolist())

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
        gpu_memory, used = column(self.gpu_memory), np.array([column(each) for each in self.shares])
        is_open = used < 0
        free_gpus = column(self.unshared) - ONE_GPU * _count(is_open)
        requests, memory = np.array([[share.request] for share in shares], np.int64), memories_of(shares, gpu_memory)
        limits = np.where(memory > 0, gpu_memory // np.maximum(memory, 1), WHOLE_GPU)
        on_unused = np.minimum(WHOLE_GPU // requests, limits)
        total: Amounts = on_unused * (free_gpus // ONE_GPU)
        # Only open vGPUs of which enough is left for the smallest of these shares: a tenth of all, if little is left.
        has_left = is_open & (used > (int(requests.min()) - 1) * ONE_GPU - FULL)
        rows, numbers = np.divmod(np.flatnonzero(has_left.T), len(used))
        if len(rows):
            times = left_of(used[numbers, rows]) // requests
            memory_left = np.array([column(each) for each in self.memories])[numbers, rows] + gpu_memory[rows]
            memory = memory[:, rows]
            by_memory = np.where(memory > 0, memory_left // np.maximum(memory, 1), WHOLE_GPU)
            if self.marks:
                times = times * self._open_to_all(used, column)[numbers, rows]
            first = np.concatenate(([0], np.flatnonzero(rows[1:] != rows[:-1]) + 1))
            total[:, rows[first]] += np.add.reduceat(np.maximum(np.minimum(times, by_memory), 0), first, axis=1)
        for index, share in enumerate(shares):
            if share.constraints != UNCONSTRAINED:
                total[index] = self._constrained_room(share, on_unused[index], column)
        # Of a node with less than none, an open vGPU has no GPU yet: it is reserved, or its GPU is lost.
        total[:, (free_gpus < 0) | (column(self.shareable) <= 0)] = 0
        return total

    def _open_to_all(self, used: Amounts, column: Lookup) -> Amounts:
        """Whether pods without constraints may join those on each vGPU, by number and row."""
        marks = self._marks(column)
        each = [UNCONSTRAINED.permit(number, users_of(used[number]), marks) for number in range(len(used))]
        return np.array(each)

    def _constrained_room(self, share: VgpuShare, on_unused: Amounts, column: Lookup) -> Amounts:
        """How many replicas each row takes with the share's constraints, without which a GPU that nobody uses takes
        `on_unused`.
        """
        constraints, marks, free_gpus = share.constraints, self._marks(column), self.free_gpus(column)
        gpu_memory = column(self.gpu_memory)
        memory = memory_of_gpus(share, gpu_memory)
        most = 1 if constraints.anti_affinity else WHOLE_GPU
        on_unused = np.minimum(on_unused, most)
        total, largest, on_chosen = (
            on_unused * (free_gpus // ONE_GPU),
            on_unused * (free_gpus >= ONE_GPU),
            on_unused * 0,
        )
        is_chosen = np.zeros(len(free_gpus), np.bool_)
        for number, each in enumerate(self.shares):
            used = column(each)
            if not (used < 0).any():
                continue
            by_memory = (gpu_memory + column(self.memories[number])) // np.maximum(memory, 1)
            times = np.minimum(left_of(used) // share.request, np.where(memory > 0, by_memory, WHOLE_GPU))
            times = times.clip(0, most) * (used < 0) * constraints.permit(number, users_of(used), marks)
            total, largest = total + times, np.maximum(largest, times)
            if constraints.gpu_id:
                has_id = (constraints.has_gpu_id(number, marks) & (users_of(used) > 0)).astype(np.bool_)
                is_chosen, on_chosen = is_chosen | has_id, np.where(has_id, np.maximum(on_chosen, times), on_chosen)
        if constraints.gpu_id:
            return np.where(is_chosen, on_chosen, largest)
        return total

    def times_in(self, share: VgpuShare, free: Sequence[int]) -> int:
        """Do as `room`, for one row as plain numbers."""
        gpu_memory = free[self.gpu_memory]
        memory = share.memory_of(gpu_memory)
        free_gpus = self.free_gpus_in(free)
        if free_gpus < 0 or free[self.shareable] <= 0:
            return 0
        constraints, named = share.constraints, self._with_gpu_id(share, free)
        most = 1 if constraints.anti_affinity else WHOLE_GPU
        on_unused = min(WHOLE_GPU // share.request, gpu_memory // memory if memory else WHOLE_GPU, most)
        times = [
            max(0, min(most, self._times_on(share, free, number)))
            for number in named or range(len(self.shares))
            if free[self.shares[number]] < 0 and self._permits(share, free, number)
        ]
        if constraints.gpu_id:
            return max([0, *times, *([on_unused] if free_gpus >= ONE_GPU and not named else [])])
        return on_unused * (free_gpus // ONE_GPU) + sum(times)

    def choose(self, share: VgpuShare, free: Sequence[int], worth: PartWorth = float) -> int | None:
        """Choose the vGPU of a node for a share: the one that loses least of what its rest is worth. Of equal ones the
        one with least left, and of GPUs that nobody uses the first. None if none takes the share.

        One with pods of the same affinity comes first.
        """
        free_gpus = self.free_gpus_in(free)
        if free_gpus < 0:
            return None
        found: tuple[bool, float, int, int] | None = None
        is_unused_seen = free_gpus < ONE_GPU
        for number in self._with_gpu_id(share, free) or range(free[self.shareable] // ONE_GPU):
            is_open = free[self.shares[number]] < 0
            if (not is_open and is_unused_seen) or self._times_on(share, free, number) <= 0:
                continue
            if not self._permits(share, free, number):
                continue
            is_unused_seen |= not is_open
            left = left_of(free[self.shares[number]]) if is_open else WHOLE_GPU
            before = worth(left) if is_open else UNUSED_GPU * worth(WHOLE_GPU)
            loss = self._is_apart(share, free, number), before - worth(left - share.request), left, number
            if found is None or loss < found:
                found = loss
        return None if found is None else found[-1]

    def take(self, share: VgpuShare, free: list[int], number: int) -> None:
        """Take a share of this vGPU from a row of plain numbers."""
        free[self.shares[number]] -= share.request * 1000
        free[self.memories[number]] -= share.memory_of(free[self.gpu_memory])
        if self.marks:
            for name, amount in share.constraints.marks(number, share.request).items():
                free[self.marks[name]] -= amount
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

    # ------------------------------------------------------------------------------------------------------ constraints

    def permits(self, share: VgpuShare, free: Sequence[int], number: int) -> bool:
        """Whether the share's constraints permit this vGPU of a node, with what is left of it in a row."""
        named = self._with_gpu_id(share, free)
        return (not named or number in named) and self._permits(share, free, number)

    def _permits(self, share: VgpuShare, free: Sequence[int], number: int) -> bool:
        if not self.marks:
            return True
        users = users_of(free[self.shares[number]])
        return bool(share.constraints.permit(number, users, self._marks(free.__getitem__)))

    def _is_apart(self, share: VgpuShare, free: Sequence[int], number: int) -> bool:
        """Whether the share wants to join others with its affinity, and the vGPU has none of them."""
        if not share.constraints.affinity:
            return False
        return not share.constraints.has_affinity(number, self._marks(free.__getitem__))

    def _with_gpu_id(self, share: VgpuShare, free: Sequence[int]) -> Sequence[int]:
        """The vGPU with the share's GPUID, if there is one on the node."""
        if not share.constraints.gpu_id:
            return ()
        marks = self._marks(free.__getitem__)
        opened = (number for number, column in enumerate(self.shares) if users_of(free[column]) > 0)
        return [number for number in opened if share.constraints.has_gpu_id(number, marks)]

    def _marks(self, column: Callable[[int], T]) -> Callable[[str], T]:
        """Return the sums of marks by name. Of one without a column there are none."""
        marks, nobody = self.marks, column(self.unshared) * 0
        return lambda name: -column(marks[name]) if name in marks else nobody


def _count(is_open: Mask) -> Amounts:
    """Count the open vGPUs of each row. Small numbers are summed in a tenth of the time that `count_nonzero` takes."""
    count: Amounts = is_open.sum(axis=0, dtype=np.int16).astype(np.int64)
    return count


def memory_of_gpus(share: VgpuShare, gpu_memory: Amounts) -> Amounts:
    """What a share takes of the memory of each row's GPUs."""
    memory: Amounts = memories_of([share], gpu_memory)[0]
    return memory


def memories_of(shares: Sequence[VgpuShare], gpu_memory: Amounts) -> Amounts:
    """Do as `memory_of_gpus` for several shares, a row for each."""
    parts = [[share.request if share.memory is None else 0] for share in shares]
    amounts = [[0 if share.memory is None else min(share.memory, MAX_MEMORY)] for share in shares]
    return gpu_memory // WHOLE_GPU * np.array(parts, np.int64) + np.array(amounts, np.int64)
