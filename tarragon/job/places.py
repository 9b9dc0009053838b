"""Places: where a replica is. A place is the name of a node, or of one of its vGPUs, as `gpu-1/0`.

A vGPU is a GPU of a node that pods share. A node numbers its own from 0; which GPU of the machine that is, the node
decides when the first pod comes.
"""

from __future__ import annotations

_SEPARATOR = "/"
"""No name of a node has one."""


def vgpu_place(node: str, number: int) -> str:
    return f"{node}{_SEPARATOR}{number}"


def node_of(place: str) -> str:
    return place.partition(_SEPARATOR)[0]


def describe_place(place: str) -> str:
    """Return the place in words: `vGPU 0 of node gpu-1`."""
    number = vgpu_of(place)
    return f"node {place}" if number is None else f"vGPU {number} of node {node_of(place)}"


def vgpu_of(place: str) -> int | None:
    """Return the number of the vGPU; None for a place that is a whole node."""
    _, separator, number = place.partition(_SEPARATOR)
    return int(number) if separator else None
