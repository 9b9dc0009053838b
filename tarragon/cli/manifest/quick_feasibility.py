"""Tells cheaply which jobs the nodes can certainly run: to ask the scheduler takes half a second for its import alone.

Any doubt is left to the scheduler, in `explain.impossible_jobs`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tarragon.base.resources import PODS
from tarragon.job.model import ReplicaSpec, TrainingJob
from tarragon.kube.core import Node
from tarragon.kube.meta import JsonObject
from tarragon.kube.scheduling.gpu_shares import share_of_template
from tarragon.kube.scheduling.host_ports import HOST_PORT_PREFIX
from tarragon.kube.scheduling.node_resources import allocatable_with_gpus, overcommitted_resources
from tarragon.kube.scheduling.taints import untolerated_taint
from tarragon.plan.nodes.replica_requests import group_request

_CHOOSING_FIELDS = (
    "nodeName",
    "nodeSelector",
    "affinity",
    "topologySpreadConstraints",
    "resourceClaims",
    "schedulingGates",
    "runtimeClassName",
)
"""Fields of a pod by which not every node may run it."""
_CHOOSING_VOLUMES = ("persistentVolumeClaim", "ephemeral")
MANY_REPLICAS = 64
"""Up to so many replicas, the pods that a node takes are no bound worth asking for: kubelets take 110 by default."""


def may_lack_nodes(jobs: Iterable[TrainingJob]) -> bool:
    """Whether a replica requests something that no node may have, or chooses among the nodes, or there are many.

    Any other job runs on every node that takes pods at all.
    """
    groups = _groups(jobs)
    return sum(group.replicas for group in groups) > MANY_REPLICAS or any(
        _chooses_nodes(group.template) or any(amount for name, amount in group_request(group).items() if name != PODS)
        for group in groups
    )


def surely_fit(jobs: Iterable[TrainingJob], nodes: Iterable[Node]) -> bool:
    """Whether all replicas together certainly fit on the nodes when these are empty. False may mean that they fit."""
    groups = _groups(jobs)
    if any(_chooses_nodes(group.template) for group in groups):
        return False
    requests = [group_request(group) for group in groups]
    if any(name.startswith(HOST_PORT_PREFIX) for request in requests for name in request):
        return False
    left = [group.replicas for group in groups]
    for node in nodes:
        if not node.is_ready or untolerated_taint((), node) is not None:
            continue
        free, unbounded = allocatable_with_gpus(node), overcommitted_resources(node)
        for position, request in enumerate(requests):
            bounded = {name: amount for name, amount in request.items() if amount and name not in unbounded}
            count = min(left[position], _times(bounded, free))
            left[position] -= count
            free.update({name: free.get(name, 0) - count * amount for name, amount in bounded.items()})
    return not any(left)


def _groups(jobs: Iterable[TrainingJob]) -> Sequence[ReplicaSpec]:
    return [group for job in jobs for group in job.replica_specs if group.replicas]


def _chooses_nodes(template: JsonObject) -> bool:
    spec = template.get("spec", {})
    volumes = spec.get("volumes", [])
    return (
        any(spec.get(field) for field in _CHOOSING_FIELDS)
        or any(kind in volume for volume in volumes for kind in _CHOOSING_VOLUMES)
        or share_of_template(template) is not None
    )


def _times(request: Mapping[str, int], free: Mapping[str, int]) -> int:
    """Returns how often the request, which includes the pod itself, fits."""
    return min((free.get(name, 0) // amount for name, amount in request.items()), default=0)
