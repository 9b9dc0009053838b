"""Shares of GPUs, as the scheduler counts them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from tarragon.base.gpu_constraints import UNCONSTRAINED, GpuConstraints
from tarragon.base.resources import WHOLE_GPU, Resources, vgpu_memory, vgpu_share

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

T = TypeVar("T", int, "npt.NDArray[np.int64]")

ONE_GPU = 1000
"""One GPU in amounts of whole GPUs."""
FULL = WHOLE_GPU * 1000
"""A whole GPU in amounts of shares: thousandths of thousandths of a GPU."""
HELD_BY_ANCHOR = 1
"""What the pod that holds a GPU for those that share it takes of the vGPU: the smallest amount there is. It takes no
share from the others, but while it is there, no pod can have the GPU whole.
"""


def claims_of(share: VgpuShare | None) -> int:
    """The `GpuConstraints.claims` of a share; 0 without one."""
    return 0 if share is None else share.constraints.claims


@dataclass(frozen=True, slots=True)
class VgpuShare:
    """What each replica of a demand needs of one GPU."""

    request: int
    """Thousandths of the GPU, from 1 to 1000."""
    memory: int | None = None
    """Memory in thousandths of bytes; None for the same part of the memory as of the GPU."""
    constraints: GpuConstraints = UNCONSTRAINED
    """With whom it may share the GPU."""

    def memory_of(self, gpu_memory: int) -> int:
        """Return the memory that a replica takes of a GPU with this much, both in thousandths of bytes."""
        return gpu_memory * self.request // WHOLE_GPU if self.memory is None else self.memory

    def amounts(self, number: int, gpu_memory: int) -> Resources:
        """Return what a replica takes of the vGPU with this number."""
        return {
            vgpu_share(number): self.request * 1000,
            vgpu_memory(number): self.memory_of(gpu_memory),
            **self.constraints.marks(number, self.request),
        }


def left_of(used: T) -> T:
    """What is left of vGPUs, in thousandths. The pod that holds the GPU for them takes less than one."""
    return (FULL + used + 999) // 1000


def users_of(used: T) -> T:
    """The sum of the requests of those who share vGPUs, in thousandths."""
    return -used // 1000
