"""What the rest of a node is worth to the requests of a cluster in which GPUs are shared.

A replica goes where it takes least of this worth. What counts on a node is what is left of its GPUs, as far as the CPUs
and the memory beside them suffice. What is left of a GPU counts for as much as the requests of the cluster could make
of it: half a GPU is worth a third to a cluster that asks for a third at a time. A GPU that nobody uses is worth a
little more than its parts, and a node with as many of them as the largest replica needs is worth more still.

On openb, the trace of a cluster at Alibaba with 6,212 GPUs, this allocates 96.2 % of them, where FGD (Weng et al., ATC
2023), the best rule published, allocates 95.2 % (docs/benchmarks.md). The constants are the middle of a plateau.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tarragon.base.resources import CPU, MEMORY, WHOLE_GPU
from tarragon.scheduling.api.gpu_shares import ONE_GPU, left_of
from tarragon.scheduling.state.cutting_stock import GRID, part_values
from tarragon.scheduling.state.inventory import Layout, ScoreArray
from tarragon.scheduling.state.node_requests import Amounts, Mask, NodeRequest
from tarragon.scheduling.state.vgpus import UNUSED_GPU, PartWorth, VgpuColumns

LINEAR_PART = 0.2
"""How much of the worth of a part is just its size, so that odd rests are not worth nothing."""
LARGEST_REQUEST = 0.3
"""What is added, in GPUs, for as many unused ones as the largest request of the cluster needs."""
_QUANTILES = 8
_SHARES = 256
"""Requests count in so many parts of all, so that the worth is not computed anew after each of thousands of starts."""
_NEVER = 1e-9
_TIE = 1e-6

RequestKind = tuple[int, int, int]
"""What a replica requests of the CPU and the memory, and of GPUs in thousandths."""


@dataclass(frozen=True, slots=True)
class _Saturation:
    """For how much of the GPUs of a node the amount of another resource suffices, by what requests have per GPU."""

    per_gpu: ScoreArray
    parts: ScoreArray

    @classmethod
    def of(cls, per_gpu: ScoreArray, weights: ScoreArray) -> _Saturation:
        """Condense the requests to a few of equal weight."""
        order = np.argsort(per_gpu, kind="stable")
        per_gpu, weights = np.maximum(per_gpu[order], _NEVER), weights[order] / weights.sum()
        middles = np.cumsum(weights) - weights / 2
        slices = np.minimum((middles * _QUANTILES).astype(np.int64), _QUANTILES - 1)
        parts: ScoreArray = np.bincount(slices, weights, _QUANTILES).astype(np.float64)
        sums = np.bincount(slices, weights * per_gpu, _QUANTILES)
        return cls(sums[parts > 0] / parts[parts > 0], parts[parts > 0])

    def at(self, per_gpu: ScoreArray) -> ScoreArray:
        result: ScoreArray = np.minimum(1.0, per_gpu[:, np.newaxis] / self.per_gpu) @ self.parts
        return result


class GpuWorth:
    """The worth of free resources to these kinds of requests, by their weight."""

    def __init__(self, kinds: Mapping[RequestKind, int]) -> None:
        cpu, memory, thousandths = (np.array(column, np.float64) for column in zip(*kinds, strict=True))
        gpus = thousandths / ONE_GPU
        counts = np.array(list(kinds.values()), np.float64)
        self._cpu = _Saturation.of(cpu / gpus, counts * gpus)
        self._memory = _Saturation.of(memory / gpus, counts * gpus)
        self._largest = int(gpus.max()) if gpus.max() > 1 else 0
        sizes = Counter[int]()
        for (_, _, size), count in kinds.items():
            if size < ONE_GPU:
                sizes[-(-size * GRID // ONE_GPU)] += count
        values = (1 - LINEAR_PART) * part_values(sizes) + LINEAR_PART * np.arange(GRID + 1) / GRID
        self.of_part: ScoreArray = values[np.arange(WHOLE_GPU + 1) * GRID // WHOLE_GPU]
        """The worth of what is left of a GPU that is shared, by thousandths."""
        self.part: PartWorth = self.of_part.tolist().__getitem__
        """Returns the same for one number, as looking it up in an array takes three times as long."""

    def of_rows(self, gpus: ScoreArray, unused: Amounts, cpu: Amounts, memory: Amounts) -> ScoreArray:
        """Return the worth of nodes with GPUs of this worth, so many of them unused."""
        each = np.maximum(gpus, _NEVER)
        worth = gpus * np.minimum(self._cpu.at(cpu / each), self._memory.at(memory / each))
        if self._largest:
            worth = worth + LARGEST_REQUEST * (unused // ONE_GPU // self._largest)
        return worth


@dataclass(frozen=True, slots=True, eq=False)
class WorthColumns:
    """A table of free amounts as what `GpuWorth` looks at."""

    vgpus: VgpuColumns
    cpu: int | None
    memory: int | None

    @classmethod
    def of(cls, layout: Layout) -> WorthColumns | None:
        """Return None for nodes whose GPUs are not shared."""
        return None if layout.vgpus is None else cls(layout.vgpus, layout.columns.get(CPU), layout.columns.get(MEMORY))

    def waste(self, worth: GpuWorth, table: Amounts, requests: Sequence[tuple[NodeRequest, int]]) -> ScoreArray:
        """Return how much of the worth of each row so many replicas take. Where they do not fit, any number."""
        vgpus = self.vgpus
        unused = np.maximum(table[:, vgpus.free], 0)
        used = table.T[list(vgpus.shares)]
        left = np.where(used < 0, np.maximum(left_of(used), 0), 0)
        gpus = UNUSED_GPU * (unused / ONE_GPU)
        for part in worth.of_part[left]:
            gpus += part
        lost, opened = np.zeros(len(table)), np.zeros(len(table), np.int64)
        for request, count in requests:
            if request.share is None:
                lost += UNUSED_GPU * int(request.row[vgpus.free]) * count / ONE_GPU
                opened += int(request.row[vgpus.free]) * count
            else:
                lost_by_one, opens = _lost_by_share(worth, left, unused >= ONE_GPU, request.share.request)
                lost += lost_by_one * count
                opened += opens * (ONE_GPU * count)
        cpu, memory = self._column(table, self.cpu), self._column(table, self.memory)
        after = worth.of_rows(
            np.maximum(gpus - lost, 0.0),
            np.maximum(unused - opened, 0),
            np.maximum(cpu - _requested(requests, self.cpu), 0),
            np.maximum(memory - _requested(requests, self.memory), 0),
        )
        result: ScoreArray = worth.of_rows(gpus, unused, cpu, memory) - after + _TIE * gpus
        return result

    @staticmethod
    def _column(table: Amounts, column: int | None) -> Amounts:
        return np.full(len(table), ONE_GPU**3) if column is None else np.maximum(table[:, column], 0)


def kinds_of(requests: Iterable[tuple[NodeRequest, int]], columns: WorthColumns) -> Mapping[RequestKind, int]:
    """Count what is requested of GPUs, by kind, in parts of all. Empty if nothing is."""
    replicas = defaultdict[NodeRequest, int](int)
    for request, count in requests:
        replicas[request] += count
    counts = Counter[RequestKind]()
    for request, count in replicas.items():
        gpus = request.share.request if request.share is not None else int(request.row[columns.vgpus.free])
        if gpus and count:
            cpu, memory = (0 if each is None else int(request.row[each]) for each in (columns.cpu, columns.memory))
            counts[cpu, memory, gpus] += count
    total = counts.total()
    return {kind: -(-count * _SHARES // total) for kind, count in sorted(counts.items())}


def _requested(requests: Sequence[tuple[NodeRequest, int]], column: int | None) -> int:
    return 0 if column is None else sum(int(request.row[column]) * count for request, count in requests)


def _lost_by_share(worth: GpuWorth, left: Amounts, has_unused: Mask, share: int) -> tuple[ScoreArray, Mask]:
    """Return what a share takes of the GPU that loses least, and whether that is one that nobody uses. `left` is what
    is left of each open vGPU, by number and row.
    """
    losses = worth.of_part[left] - worth.of_part[np.maximum(left - share, 0)]
    least = np.where(left >= share, losses, np.inf).min(axis=0)
    new = UNUSED_GPU - worth.of_part[WHOLE_GPU - share]
    opens = has_unused & (new <= least)
    least = np.where(opens, new, least)
    return np.where(np.isfinite(least), least, 0.0), opens
