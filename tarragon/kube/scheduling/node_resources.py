"""The resources that a node offers to pods, and those of them that may be overcommitted."""

from __future__ import annotations

from tarragon.base.resources import NVIDIA_GPU
from tarragon.kube.core import Node
from tarragon.kube.scheduling.hami import hami_gpus
from tarragon.kube.scheduling.node_gpu_sharing import GpuSharing, gpu_sharing
from tarragon.kube.scheduling.pod_requests import amounts, whole_units

OVERCOMMIT_ANNOTATION = "tarragon.dev/overcommit"
"""Node annotation: comma-separated resources, such as `cpu`, of which pods may request more than the node has."""
HOST_PORTS = "hostPorts"
"""A value of that annotation: host ports never conflict on the node, because each pod gets its own."""


def node_allocatable(node: Node) -> dict[str, int]:
    """Return what the node can allocate to pods, in thousandths; its capacity if it reports no allocatable."""
    return whole_units(amounts(node.status.allocatable or node.status.capacity))


def allocatable_with_gpus(node: Node) -> dict[str, int]:
    """Return the same with the number of GPUs that there are: HAMi's device plugin offers each several times.

    When the device plugin is gone, the kubelet offers none, while the annotation stays.
    """
    found = node_allocatable(node)
    if gpu_sharing(node) is not GpuSharing.HAMI:
        return found
    return {**found, NVIDIA_GPU: min(len(hami_gpus(node)) * 1000, found.get(NVIDIA_GPU, 0))}


def overcommitted_resources(node: Node) -> frozenset[str]:
    """Return the resources of the node that may be overcommitted, `HOST_PORTS` among them."""
    names = node.metadata.annotations.get(OVERCOMMIT_ANNOTATION, "").split(",")
    return frozenset(name.strip() for name in names) - {""}
