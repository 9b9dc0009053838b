"""Resource requests of pods, capacity of nodes, and which nodes are eligible for a pod template."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import msgspec

from tarragon.base.quantity import parse_milli
from tarragon.base.resources import CPU, PODS, add_resources, maximum
from tarragon.job.model import ReplicaSpec
from tarragon.kube.core import Container, Node, PodSpec, ResourceRequirements
from tarragon.kube.meta import JsonObject
from tarragon.plan.nodes.predicates import permanent_infeasible_reason
from tarragon.plan.nodes.storage import VolumeTopology

ONE_POD = {PODS: 1000}
ONE_PORT = 1000
HOST_PORT_PREFIX = "host-port:"
"""The prefix of the pseudo-resource of a host port: each node has one of each port number."""
MAX_LISTED = 3
"""How many nodes and reasons are listed when no node is eligible for a pod."""

Quantities = Mapping[str, str | int | float]


def group_request(group: ReplicaSpec) -> Mapping[str, int]:
    """Return the requests of each pod of a group. On the host network its service port counts, even if not declared."""
    requests = template_request(group.template)
    return {**requests, **_port(group.port, "TCP")} if pod_spec(group.template).host_network else requests


def template_request(template: JsonObject) -> Mapping[str, int]:
    """Return the requests of each pod of a valid template, in thousandths."""
    return pod_request(pod_spec(template))


def pod_spec(template: JsonObject) -> PodSpec:
    """Return the part of a template that scheduling reads."""
    return msgspec.convert(template.get("spec", {}), PodSpec)


def pod_request(spec: PodSpec) -> Mapping[str, int]:
    """Return the pod's requests as kube-scheduler counts them.

    Containers that run at the same time add up; init containers count where they need more. A missing request defaults
    to the limit, as in the API server; the pod-level limit applies to resources that no container requests.
    """
    sidecars: dict[str, int] = {}
    peak: Mapping[str, int] = {}
    for container in spec.init_containers:
        request = _container_request(container)
        peak = maximum(peak, add_resources([sidecars, request]))
        if container.restart_policy == "Always":
            sidecars = add_resources([sidecars, request])
    running = add_resources([sidecars, *(_container_request(container) for container in spec.containers)])
    container_requests = maximum(running, peak)
    requests = {**_amounts(spec.resources.limits), **container_requests, **_amounts(spec.resources.requests)}
    return {**add_resources([requests, _amounts(spec.overhead), ONE_POD]), **_host_ports(spec)}


def node_capacity(node: Node) -> Mapping[str, int]:
    """Return what the node can allocate to pods, in thousandths."""
    return _amounts(node.status.allocatable or node.status.capacity)


def eligible_nodes(
    template: JsonObject, nodes: Iterable[Node], reaches: Sequence[VolumeTopology] = ()
) -> frozenset[str]:
    """Return the nodes that accept pods of this template and can use its volumes, whatever is free there.

    Nodes that are temporarily unavailable are included: the scheduler excludes them when it assigns nodes.
    """
    spec = pod_spec(template)
    return frozenset(
        node.metadata.name
        for node in nodes
        if permanent_infeasible_reason(spec, node) is None and all(reach.matches(node) for reach in reaches)
    )


def no_eligible_node_message(template: JsonObject, nodes: Iterable[Node]) -> str:
    """Return why no node is eligible for a template, grouped by reason: `nodes a, b: it has no label disk=ssd`."""
    spec = pod_spec(template)
    node_names_by_reason: dict[str, list[str]] = {}
    for node in nodes:
        reason = permanent_infeasible_reason(spec, node) or "the pod's volumes are not available there"
        node_names_by_reason.setdefault(reason, []).append(node.metadata.name)
    groups = sorted(node_names_by_reason.items(), key=lambda group: -len(group[1]))
    return "; ".join(f"{_node_list(names)}: {reason}" for reason, names in groups[:MAX_LISTED])


def _node_list(names: Sequence[str]) -> str:
    if len(names) > MAX_LISTED:
        return f"{len(names)} nodes"
    return f"node{'s' if len(names) > 1 else ''} {', '.join(sorted(names))}"


def _host_ports(spec: PodSpec) -> dict[str, int]:
    """Return the host ports of a pod. On the host network all container ports count. Each port counts once per pod."""
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
    return {f"{HOST_PORT_PREFIX}{number}" if protocol == "TCP" else f"{HOST_PORT_PREFIX}{number}:{protocol}": ONE_PORT}


def _container_request(container: Container) -> Mapping[str, int]:
    return _requests(container.resources)


def _requests(resources: ResourceRequirements) -> Mapping[str, int]:
    return _amounts({**resources.limits, **resources.requests})


def _amounts(quantities: Quantities) -> dict[str, int]:
    return {name: _milli(quantity) if name == CPU else _whole(quantity) for name, quantity in quantities.items()}


def _whole(quantity: str | float) -> int:
    """Round up to whole units, as kube-scheduler does for each container and all resources but cpu."""
    return -(-_milli(quantity) // 1000) * 1000


@lru_cache(maxsize=4096)
def _milli(quantity: str | float) -> int:
    """Return the quantity in thousandths; 0 if it is invalid or negative, as pods of other owners may be."""
    try:
        return max(0, parse_milli(quantity))
    except ValueError:
        return 0
