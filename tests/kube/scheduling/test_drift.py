"""The gang scheduler and the embedded cluster decide as Kubernetes about the requests of pods and about nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from tarragon.base.quantity import parse_milli
from tarragon.base.resources import add_resources, fits, subtract
from tarragon.kube.core import Node, Pod
from tarragon.localcluster.fit import filter_reasons, node_allocatable, requests_of_pod
from tarragon.plan.nodes.capacity import HOST_PORT_PREFIX, ONE_PORT, node_capacity, pod_request
from tarragon.plan.nodes.predicates import infeasible_reason
from tests.kube.scheduling.kubernetes_cases import NODES, REQUESTS, NodeCase, RequestCase, container

Json = dict[str, Any]
EMBEDDED, OPERATOR = "embedded", "operator"


def pod(spec: Json) -> Pod:
    return msgspec.convert(
        {"metadata": {"name": "p"}, "spec": {"containers": [container()], **spec}}, Pod, strict=False
    )


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


REQUEST_OF: Mapping[str, Callable[[Pod], Mapping[str, int]]] = {
    EMBEDDED: requests_of_pod,
    OPERATOR: lambda one: pod_request(one.spec),
}


def embedded_accepts(asking: Pod, target: Node, others: list[Pod]) -> bool:
    free = subtract(node_allocatable(target), add_resources(map(requests_of_pod, others)))
    return not filter_reasons(asking, target, free)


def operator_accepts(asking: Pod, target: Node, others: list[Pod]) -> bool:
    wanted = pod_request(asking.spec)
    ports = {name: ONE_PORT for name in wanted if name.startswith(HOST_PORT_PREFIX)}
    held = add_resources(pod_request(other.spec) for other in others)
    free = subtract({**node_capacity(target), **ports}, held)
    return infeasible_reason(asking.spec, target) is None and fits(wanted, free)


ACCEPTS = {EMBEDDED: embedded_accepts, OPERATOR: operator_accepts}


DRIFTED: Mapping[str, frozenset[str]] = {
    EMBEDDED: frozenset(
        {
            "pod-level requests replace those of the containers",
            "pod-level limits count where no container requests",
            "pod-level requests count besides container requests of other resources",
            "pod-level limits of huge pages replace the requests of the containers",
            "overhead is added to pod-level requests",
            "a negative quantity counts as zero",
            "label odd Gt 4",
            "label big Gt 4",
            "more than one number",
            "an unknown toleration operator",
            "a used host port",
            "two ports on the host network",
            "a port on the host network",
            "the port of a sidecar",
            "others with pod-level requests",
        }
    ),
    OPERATOR: frozenset(
        {
            "whole units are rounded up for the pod and not for each container",
            "pod-level limits of huge pages replace the requests of the containers",
            "devices can't be requested at the level of the pod",
            "label big Gt 4",
            "an unknown toleration operator",
        }
    ),
}
"""The cases in which an implementation differs from Kubernetes."""


@pytest.fixture(autouse=True)
def _known_difference(request: pytest.FixtureRequest, case: RequestCase | NodeCase, who: str) -> None:
    if case.name in DRIFTED[who]:
        request.applymarker(pytest.mark.xfail(reason="drifted", strict=True))


@pytest.mark.parametrize("who", [EMBEDDED, OPERATOR])
@pytest.mark.parametrize("case", REQUESTS, ids=lambda case: case.name)
def test_a_pod_requests_what_kubernetes_counts(case: RequestCase, who: str) -> None:
    found = {name: amount for name, amount in REQUEST_OF[who](pod(case.spec)).items() if amount and name != "pods"}

    assert found == {name: parse_milli(amount) for name, amount in case.requests.items()}


@pytest.mark.parametrize("who", [EMBEDDED, OPERATOR])
@pytest.mark.parametrize("case", NODES, ids=lambda case: case.name)
def test_a_node_accepts_the_pods_that_kube_scheduler_puts_there(case: NodeCase, who: str) -> None:
    assert ACCEPTS[who](pod(case.spec), node(case), [pod(other) for other in case.others]) is case.accepts
