"""The gang scheduler and the embedded cluster decide as Kubernetes about the requests of pods and about nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from tarragon.base.quantity import parse_milli
from tarragon.base.resources import PODS, add_resources, fits, subtract
from tarragon.kube.core import Node, Pod
from tarragon.kube.scheduling.host_ports import HOST_PORT_PREFIX, ONE_PORT
from tarragon.kube.scheduling.node_resources import node_allocatable
from tarragon.kube.scheduling.pod_requests import resource_request, scheduling_request
from tarragon.localcluster.scheduler.filters import filter_reasons
from tarragon.plan.nodes.feasibility import infeasible_reason
from tests.kube.scheduling.kubernetes_cases import NODES, REQUESTS, NodeCase, RequestCase, container

Json = dict[str, Any]


def pod(spec: Json, status: Json | None = None) -> Pod:
    body = {"metadata": {"name": "p"}, "spec": {"containers": [container()], **spec}, "status": status or {}}
    return msgspec.convert(body, Pod, strict=False)


def node(case: NodeCase) -> Node:
    return msgspec.convert(
        {
            "metadata": {"name": "here", "labels": dict(case.labels)},
            "spec": {"taints": list(case.taints), "unschedulable": case.unschedulable},
            "status": {
                "allocatable": {"cpu": "8", "memory": "8Gi", "pods": "3"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        },
        Node,
        strict=False,
    )


def used_by(others: Sequence[Pod]) -> Mapping[str, int]:
    return add_resources(scheduling_request(other.spec, other.status) for other in others)


def embedded_accepts(asking: Pod, target: Node, others: Sequence[Pod]) -> bool:
    return not filter_reasons(asking, target, used_by(others))


def operator_accepts(asking: Pod, target: Node, others: Sequence[Pod]) -> bool:
    wanted = scheduling_request(asking.spec)
    ports = {name: ONE_PORT for name in wanted if name.startswith(HOST_PORT_PREFIX)}
    free = subtract({**node_allocatable(target), **ports}, used_by(others))
    return infeasible_reason(asking.spec, target) is None and fits(wanted, free)


@pytest.mark.parametrize("case", REQUESTS, ids=lambda case: case.name)
def test_a_pod_requests_what_kubernetes_counts(case: RequestCase) -> None:
    found = {name: amount for name, amount in resource_request(pod(case.spec).spec).items() if amount}

    assert found == {PODS: 1000, **{name: parse_milli(amount) for name, amount in case.requests.items()}}


@pytest.mark.parametrize("accepts", [embedded_accepts, operator_accepts])
@pytest.mark.parametrize("case", NODES, ids=lambda case: case.name)
def test_a_node_accepts_the_pods_that_kube_scheduler_puts_there(
    case: NodeCase, accepts: Callable[[Pod, Node, Sequence[Pod]], bool]
) -> None:
    others = [pod(other, case.status_of_others) for other in case.others]

    assert accepts(pod(case.spec), node(case), others) is case.accepts
