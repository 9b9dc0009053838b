"""What Kubernetes says of pods and nodes, as numbers: what a pod needs, what a node has, and who may run where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import msgspec

from tarragon.base.quantity import milli
from tarragon.base.resources import PODS, largest, total
from tarragon.kube.core import Container, Node, PodSpec, ResourceRequirements
from tarragon.kube.meta import JsonObject
from tarragon.plan.predicates import refusal
from tarragon.plan.storage import Reach

ONE_POD = {PODS: 1000}

Amounts = Mapping[str, str | int | float]


def template_request(template: JsonObject) -> Mapping[str, int]:
    """What each pod of a template that passed intake needs, in thousandths."""
    return pod_request(pod_spec(template))


def pod_spec(template: JsonObject) -> PodSpec:
    """The part of a template that scheduling reads."""
    return msgspec.convert(template.get("spec", {}), PodSpec)


def pod_request(spec: PodSpec) -> Mapping[str, int]:
    """As kube-scheduler counts: what runs at the same time adds up, what runs before it counts where it needs more.

    A limit stands for a request that is missing, as the API server would fill it in.
    """
    sidecars: dict[str, int] = {}
    peak: Mapping[str, int] = {}
    for container in spec.init_containers:
        needs = _container_request(container)
        peak = largest(peak, total([sidecars, needs]))
        if container.restart_policy == "Always":
            sidecars = total([sidecars, needs])
    running = total([sidecars, *(_container_request(container) for container in spec.containers)])
    needed = {**largest(running, peak), **_requests(spec.resources)}
    return total([needed, _amounts(spec.overhead), ONE_POD])


def node_capacity(node: Node) -> Mapping[str, int]:
    """What the kubelet offers to pods, in thousandths."""
    return _amounts(node.status.allocatable or node.status.capacity)


def eligible_nodes(template: JsonObject, nodes: Iterable[Node], within: Sequence[Reach] = ()) -> frozenset[str]:
    """The nodes that take pods of this template, whatever is free there, and that its volumes can be used on."""
    spec = pod_spec(template)
    return frozenset(
        node.metadata.name
        for node in nodes
        if refusal(spec, node) is None and all(reach.includes(node) for reach in within)
    )


def _container_request(container: Container) -> Mapping[str, int]:
    return _requests(container.resources)


def _requests(resources: ResourceRequirements) -> Mapping[str, int]:
    return _amounts({**resources.limits, **resources.requests})


def _amounts(quantities: Amounts) -> dict[str, int]:
    return {name: _milli(quantity) for name, quantity in quantities.items()}


@lru_cache(maxsize=4096)
def _milli(quantity: str | float) -> int:
    """What is no quantity is none: other people's pods are counted, too, and need not be right."""
    try:
        return milli(quantity)
    except ValueError:
        return 0
