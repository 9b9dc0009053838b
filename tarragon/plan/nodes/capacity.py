"""What Kubernetes says of pods and nodes, as numbers: what a pod needs, what a node has, and who may run where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import msgspec

from tarragon.base.quantity import milli
from tarragon.base.resources import CPU, PODS, largest, total
from tarragon.job.model import ReplicaGroup
from tarragon.kube.core import Container, Node, PodSpec, ResourceRequirements
from tarragon.kube.meta import JsonObject
from tarragon.plan.nodes.predicates import lasting_refusal
from tarragon.plan.nodes.storage import Reach

ONE_POD = {PODS: 1000}
ONE_PORT = 1000
HOST_PORT = "host-port:"
"""How a port of the node itself is counted: each node has one of each number."""
MOST_TOLD = 3
"""Nodes that are named, and reasons that are given, where no node takes a pod."""

Amounts = Mapping[str, str | int | float]


def group_request(group: ReplicaGroup) -> Mapping[str, int]:
    """What each pod of a group needs: the port by which the others reach it is there, whether it is written or not."""
    needed = template_request(group.template)
    return {**needed, **_port(group.port, "TCP")} if pod_spec(group.template).host_network else needed


def template_request(template: JsonObject) -> Mapping[str, int]:
    """What each pod of a template that passed intake needs, in thousandths."""
    return pod_request(pod_spec(template))


def pod_spec(template: JsonObject) -> PodSpec:
    """The part of a template that scheduling reads."""
    return msgspec.convert(template.get("spec", {}), PodSpec)


def pod_request(spec: PodSpec) -> Mapping[str, int]:
    """As kube-scheduler counts: what runs at the same time adds up, what runs before it counts where it needs more.

    A limit stands for a request that is missing, as the API server would fill it in; that of the whole pod, for what
    none of its containers asks for.
    """
    sidecars: dict[str, int] = {}
    peak: Mapping[str, int] = {}
    for container in spec.init_containers:
        needs = _container_request(container)
        peak = largest(peak, total([sidecars, needs]))
        if container.restart_policy == "Always":
            sidecars = total([sidecars, needs])
    running = total([sidecars, *(_container_request(container) for container in spec.containers)])
    of_containers = largest(running, peak)
    needed = {**_amounts(spec.resources.limits), **of_containers, **_amounts(spec.resources.requests)}
    return {**total([needed, _amounts(spec.overhead), ONE_POD]), **_host_ports(spec)}


def node_capacity(node: Node) -> Mapping[str, int]:
    """What the kubelet offers to pods, in thousandths."""
    return _amounts(node.status.allocatable or node.status.capacity)


def eligible_nodes(template: JsonObject, nodes: Iterable[Node], within: Sequence[Reach] = ()) -> frozenset[str]:
    """The nodes that take pods of this template, whatever is free there, and that its volumes can be used on.

    Those that are away for a while are among them: they are told apart by whoever gives places away.
    """
    spec = pod_spec(template)
    return frozenset(
        node.metadata.name
        for node in nodes
        if lasting_refusal(spec, node) is None and all(reach.includes(node) for reach in within)
    )


def why_nowhere(template: JsonObject, nodes: Iterable[Node]) -> str:
    """What the nodes say of a template that none of them takes: `nodes a, b: it has no label disk=ssd`."""
    spec = pod_spec(template)
    said: dict[str, list[str]] = {}
    for node in nodes:
        why = lasting_refusal(spec, node) or "the volumes of the pod can't be used there"
        said.setdefault(why, []).append(node.metadata.name)
    groups = sorted(said.items(), key=lambda group: -len(group[1]))
    return "; ".join(f"{_named(names)}: {why}" for why, names in groups[:MOST_TOLD])


def _named(names: Sequence[str]) -> str:
    if len(names) > MOST_TOLD:
        return f"{len(names)} nodes"
    return f"node{'s' if len(names) > 1 else ''} {', '.join(sorted(names))}"


def _host_ports(spec: PodSpec) -> dict[str, int]:
    """On the host's network every port of a container is the node's. A pod never collides with itself."""
    sidecars = (container for container in spec.init_containers if container.restart_policy == "Always")
    return {
        name: amount
        for container in (*spec.containers, *sidecars)
        for port in container.ports
        for number in [port.host_port or (port.container_port if spec.host_network else 0)]
        if number
        for name, amount in _port(number, port.protocol).items()
    }


def _port(number: int, protocol: str) -> dict[str, int]:
    return {f"{HOST_PORT}{number}" if protocol == "TCP" else f"{HOST_PORT}{number}:{protocol}": ONE_PORT}


def _container_request(container: Container) -> Mapping[str, int]:
    return _requests(container.resources)


def _requests(resources: ResourceRequirements) -> Mapping[str, int]:
    return _amounts({**resources.limits, **resources.requests})


def _amounts(quantities: Amounts) -> dict[str, int]:
    return {name: _milli(quantity) if name == CPU else _whole(quantity) for name, quantity in quantities.items()}


def _whole(quantity: str | float) -> int:
    """Nothing but cpu comes in parts: kube-scheduler rounds up, container by container."""
    return -(-_milli(quantity) // 1000) * 1000


@lru_cache(maxsize=4096)
def _milli(quantity: str | float) -> int:
    """What is no quantity, or less than none, is none: other people's pods are counted, too, and need not be right."""
    try:
        return max(0, milli(quantity))
    except ValueError:
        return 0
