"""Arithmetic with amounts of several resources, such as the requests of a pod and the allocatable of a node.

Amounts are a mapping from resource name to thousandths (`base.quantity.parse_milli`). A missing name is zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Resources = Mapping[str, int]

CPU = "cpu"
MEMORY = "memory"
EPHEMERAL_STORAGE = "ephemeral-storage"
PODS = "pods"
NVIDIA_GPU = "nvidia.com/gpu"
GPU_MEMORY = f"{NVIDIA_GPU}/memory"
"""The memory of each GPU of a node. Nothing requests it under this name."""
GPU_MEMORY_LABEL = "nvidia.com/gpu.memory"
"""The label in which NVIDIA's GPU feature discovery reports the memory of each of a node's GPUs, in MiB."""
WHOLE_GPU = 1000
"""A whole GPU in the unit of shares of GPUs."""


def vgpu_share(number: int) -> str:
    """The name of the resource of which a vGPU has 1,000: thousandths of a GPU. A vGPU is a shared GPU of a node."""
    return f"{NVIDIA_GPU}/{number}"


def vgpu_memory(number: int) -> str:
    """The name of the memory of a vGPU as a resource, in bytes."""
    return f"{NVIDIA_GPU}/{number}/memory"


def vgpu_memory_part(number: int) -> str:
    """The same in thousandths of the memory that the GPU has, for pods of which only the part is known."""
    return f"{NVIDIA_GPU}/{number}/memory-part"


def add_resources(vectors: Iterable[Resources]) -> dict[str, int]:
    """The sum for each resource."""
    result: dict[str, int] = {}
    for vector in vectors:
        for name, amount in vector.items():
            result[name] = result.get(name, 0) + amount
    return result


def subtract(have: Resources, used: Resources) -> dict[str, int]:
    """`have` minus `used`. The result is negative where a node is overcommitted."""
    return {name: have.get(name, 0) - used.get(name, 0) for name in have.keys() | used.keys()}


def maximum(left: Resources, right: Resources) -> dict[str, int]:
    """The maximum for each resource: the requests of containers that run one after the other."""
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in left.keys() | right.keys()}


def fits(wanted: Resources, free: Resources) -> bool:
    """Whether all wanted amounts are free. A resource that is not wanted is never short, even if overcommitted."""
    return all(amount <= 0 or amount <= free.get(name, 0) for name, amount in wanted.items())


def shortage(wanted: Resources, free: Resources) -> dict[str, int]:
    """The missing amount of each resource of which there is not enough."""
    lacking: dict[str, int] = {}
    for name, amount in wanted.items():  # Twice as fast as a comprehension here, and there are thousands in a cycle.
        available = free.get(name, 0)
        if amount > 0 and amount > available:
            lacking[name] = amount - max(0, available)
    return lacking
