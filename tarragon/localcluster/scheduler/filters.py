"""The filters of the default scheduler: whether a pod fits a node, and the reasons that kube-scheduler gives if not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tarragon.base.resources import PODS, Resources, subtract
from tarragon.kube.core import Node, Pod
from tarragon.kube.scheduling.host_ports import host_ports
from tarragon.kube.scheduling.node_affinity import matches_node_affinity
from tarragon.kube.scheduling.node_resources import HOST_PORTS, node_allocatable, overcommitted_resources
from tarragon.kube.scheduling.pod_requests import resource_request
from tarragon.kube.scheduling.taints import UNSCHEDULABLE, untolerated_taint


def filter_reasons(pod: Pod, node: Node, used: Resources) -> list[str]:
    """The reasons why the pod does not fit the node beside pods that use `used`; empty if it fits.

    As in kube-scheduler, resources are checked last, and only they give more than one reason.
    """
    if not node.is_ready:
        return ["node(s) had untolerated taint {node.kubernetes.io/not-ready: }"]
    taint = untolerated_taint(pod.spec.tolerations, node)
    if taint is UNSCHEDULABLE:
        return ["node(s) were unschedulable"]
    if taint is not None:
        return [f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"]
    if not matches_node_affinity(pod.spec, node):
        return ["node(s) didn't match Pod's node affinity/selector"]
    overcommitted = overcommitted_resources(node)
    if HOST_PORTS not in overcommitted and any(used.get(port) for port in host_ports(pod.spec)):
        return ["node(s) didn't have free ports for the requested pod ports"]
    free = subtract(node_allocatable(node), used)
    return [
        "Too many pods" if name == PODS else f"Insufficient {name}"
        for name, amount in sorted(resource_request(pod.spec).items())
        if amount > max(0, free.get(name, 0)) and name not in overcommitted
    ]


def unschedulable_message(nodes: int, reasons: Iterable[str]) -> str:
    """A summary of all nodes with counted reasons: `0/1 nodes are available: 1 Insufficient memory.`, for instance."""
    if not nodes:
        return "no nodes available to schedule pods"
    counted = sorted(f"{count} {reason}" for reason, count in Counter(reasons).items())
    return f"0/{nodes} nodes are available: {', '.join(counted)}."
