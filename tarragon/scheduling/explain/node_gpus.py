"""The GPUs of one node: what is free of them, and what is left of those that pods share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tarragon.base.resources import GPU_MEMORY, NVIDIA_GPU, WHOLE_GPU, Resources, vgpu_memory, vgpu_share
from tarragon.scheduling.api.gpu_shares import FULL, ONE_GPU, VgpuShare, left_of
from tarragon.scheduling.api.snapshot import NodeState

_PREFIX = f"{NVIDIA_GPU}/"
_UNIT = FULL // WHOLE_GPU
"""A thousandth of a GPU in amounts of vGPUs."""


@dataclass(frozen=True, slots=True)
class VgpuAmount:
    """An amount of one GPU: thousandths of it, and thousandths of bytes of its memory."""

    share: int
    memory: int


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """The GPUs of a node. Without `memory`, the node does not say how much each of them has."""

    number: int
    """In thousandths, as amounts of other resources."""
    free: int
    """Those that no pod uses, in thousandths."""
    shared: Mapping[int, VgpuAmount]
    """What is left of each vGPU that pods share, by its number."""
    memory: int

    @classmethod
    def of(cls, node: NodeState) -> NodeGpus | None:
        """Return the GPUs of a node; None if they may not be shared."""
        if vgpu_share(0) not in node.capacity:
            return None
        number, memory = node.capacity.get(NVIDIA_GPU, 0), node.capacity.get(GPU_MEMORY, 0)
        used = {
            index: (node.free.get(vgpu_share(index), 0), node.free.get(vgpu_memory(index), 0))
            for index in range(number // ONE_GPU)
        }
        shared = {
            index: VgpuAmount(max(0, left_of(share)), max(0, memory + of_memory))
            for index, (share, of_memory) in used.items()
            if share < 0
        }
        free = node.free.get(NVIDIA_GPU, 0) - ONE_GPU * len(shared)
        return cls(number, max(0, free), shared if free >= 0 else {}, memory)

    @property
    def left(self) -> int:
        """All that is left, in thousandths of a GPU."""
        return self.free + sum(vgpu.share for vgpu in self.shared.values())

    def lacking(self, share: VgpuShare) -> Resources:
        """Return what the GPU that lacks least is short of for one more share; empty if one has room for it."""
        needed = share.memory_of(self.memory)
        gpus = [*self.shared.values(), *([VgpuAmount(WHOLE_GPU, self.memory)] if self.free >= ONE_GPU else [])]
        memory = [gpu.memory for gpu in gpus if gpu.share >= share.request]
        if not memory:
            return {NVIDIA_GPU: share.request - max((gpu.share for gpu in gpus), default=0)}
        return {} if max(memory) >= needed else {GPU_MEMORY: needed - max(memory)}


def vgpu_amounts(amounts: Resources) -> Mapping[int, VgpuAmount]:
    """Return what these amounts contain of each vGPU. What only keeps a GPU for others is nothing."""
    found: dict[int, VgpuAmount] = {}
    for name in amounts:
        number = name.removeprefix(_PREFIX) if name.startswith(_PREFIX) else ""
        if number.isdecimal() and amounts[name] >= _UNIT:
            index = int(number)
            found[index] = VgpuAmount(amounts[name] // _UNIT, amounts.get(vgpu_memory(index), 0))
    return dict(sorted(found.items()))


def with_fractions(amounts: Resources) -> dict[str, int]:
    """Return the amounts with parts of GPUs as fractions, without their memory."""
    shares = sum(vgpu.share for vgpu in vgpu_amounts(amounts).values())
    whole = {name: amount for name, amount in amounts.items() if not name.startswith(_PREFIX)}
    return {**whole, NVIDIA_GPU: whole.get(NVIDIA_GPU, 0) + shares} if shares else whole
