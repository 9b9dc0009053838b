from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tarragon.base.resources import subtract
from tarragon.kube.core import Node, Pod
from tarragon.localcluster.fit import filter_reasons, node_allocatable, requests_of_pod, unschedulable_message

READY = {"conditions": [{"type": "Ready", "status": "True"}]}


def node(**changes: Any) -> Node:
    """A node with 4 CPUs, 8Gi and 10 pods."""
    metadata = {"name": "here", "labels": changes.pop("labels", {}), "annotations": changes.pop("annotations", {})}
    status = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}, **READY, **changes.pop("status", {})}
    return msgspec.convert({"metadata": metadata, "spec": changes, "status": status}, Node)


def pod(**changes: Any) -> Pod:
    """A pod without any requirements except `requests` and `limits`."""
    resources = {"requests": changes.pop("requests", {}), "limits": changes.pop("limits", {})}
    spec = {"containers": [{"name": "main", "resources": resources}], **changes}
    return msgspec.convert({"metadata": {"name": "one"}, "spec": spec}, Pod)


def why_not(one: Pod, target_node: Node) -> list[str]:
    return filter_reasons(one, target_node, node_allocatable(target_node))


def test_a_pod_that_requests_no_more_than_is_free_fits() -> None:
    assert why_not(pod(requests={"cpu": "4", "memory": "8Gi"}), node()) == []


def test_each_insufficient_resource_is_named() -> None:
    greedy = pod(requests={"cpu": "4001m", "memory": "9Gi", "nvidia.com/gpu": "1"})

    assert why_not(greedy, node()) == ["Insufficient cpu", "Insufficient memory", "Insufficient nvidia.com/gpu"]


def test_allocated_resources_are_not_free() -> None:
    free = subtract(node_allocatable(node()), requests_of_pod(pod(requests={"cpu": "3"})))

    assert filter_reasons(pod(requests={"cpu": "2"}), node(), free) == ["Insufficient cpu"]


def test_overcommitted_resources_are_not_checked() -> None:
    sharing = node(annotations={"tarragon.dev/overcommit": "cpu"})

    assert why_not(pod(requests={"cpu": "20"}), sharing) == []
    assert why_not(pod(requests={"cpu": "20", "memory": "9Gi"}), sharing) == ["Insufficient memory"]


def test_a_node_runs_no_more_pods_than_its_pod_capacity() -> None:
    full = node(status={"allocatable": {"pods": "0"}})

    assert why_not(pod(), full) == ["Too many pods"]


def test_a_limit_without_a_request_is_a_request() -> None:
    assert requests_of_pod(pod(limits={"cpu": "2"}, requests={"memory": "1k"})) == {
        "cpu": 2000,
        "memory": 1000_000,
        "pods": 1000,
    }


def test_requests_count_the_largest_init_container_and_all_sidecars() -> None:
    def container(cpu: str, **more: str) -> dict[str, Any]:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    one = pod(
        initContainers=[container("5"), container("1", restartPolicy="Always"), container("3")],
        containers=[container("1"), container("2")],
        overhead={"cpu": "100m"},
    )

    assert requests_of_pod(one)["cpu"] == 5100


def test_an_invalid_quantity_does_not_stop_the_scheduler() -> None:
    assert requests_of_pod(pod(requests={"cpu": "many"}))["cpu"] == 0


def test_a_cordoned_node_accepts_only_pods_that_tolerate_it() -> None:
    cordoned = node(unschedulable=True)
    tolerant = pod(tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}])

    assert why_not(pod(), cordoned) == ["node(s) were unschedulable"]
    assert why_not(tolerant, cordoned) == []


def test_a_node_that_is_not_ready_accepts_no_pods() -> None:
    assert why_not(pod(), node(status={"conditions": []})) == [
        "node(s) had untolerated taint {node.kubernetes.io/not-ready: }"
    ]


@pytest.mark.parametrize(
    ("toleration", "suffices"),
    [
        ({"key": "gpu", "value": "yes", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "value": "yes"}, True),
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "gpu", "value": "no"}, False),
        ({"key": "gpu", "value": "yes", "effect": "NoExecute"}, False),
        ({"key": "cpu", "operator": "Exists"}, False),
    ],
)
def test_a_taint_repels_pods_that_do_not_tolerate_it(toleration: dict[str, str], suffices: bool) -> None:  # noqa: FBT001
    tainted = node(taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])

    said = why_not(pod(tolerations=[toleration]), tainted)
    assert said == ([] if suffices else ["node(s) had untolerated taint {gpu: yes}"])


def test_a_prefer_no_schedule_taint_repels_no_pods() -> None:
    assert why_not(pod(), node(taints=[{"key": "a", "effect": "PreferNoSchedule"}])) == []


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        ({"key": "disk", "operator": "In", "values": ["ssd", "nvme"]}, True),
        ({"key": "disk", "operator": "NotIn", "values": ["ssd"]}, False),
        ({"key": "zone", "operator": "NotIn", "values": ["a"]}, True),
        ({"key": "disk", "operator": "Exists"}, True),
        ({"key": "zone", "operator": "DoesNotExist"}, True),
        ({"key": "cores", "operator": "Gt", "values": ["7"]}, True),
        ({"key": "cores", "operator": "Lt", "values": ["8"]}, False),
        ({"key": "disk", "operator": "Gt", "values": ["1"]}, False),
        ({"key": "disk", "operator": "Unheard"}, False),
    ],
)
def test_required_node_affinity_is_honoured(expression: dict[str, Any], holds: bool) -> None:  # noqa: FBT001
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    choosy = pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})

    said = why_not(choosy, node(labels={"disk": "ssd", "cores": "8"}))
    assert said == ([] if holds else ["node(s) didn't match Pod's node affinity/selector"])


def test_affinity_to_a_node_by_its_name_is_honoured() -> None:
    def bound_to(name: str) -> Pod:
        field = {"key": "metadata.name", "operator": "In", "values": [name]}
        required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        return pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}})

    assert why_not(bound_to("here"), node()) == []
    assert why_not(bound_to("there"), node()) != []


def test_all_labels_of_a_node_selector_must_match() -> None:
    choosy = pod(nodeSelector={"disk": "ssd", "zone": "a"})

    assert why_not(choosy, node(labels={"disk": "ssd"})) == ["node(s) didn't match Pod's node affinity/selector"]
    assert why_not(choosy, node(labels={"disk": "ssd", "zone": "a"})) == []


def test_the_summary_counts_equal_reasons_like_kube_scheduler() -> None:
    reasons = ["Insufficient memory", "node(s) were unschedulable", "Insufficient memory"]

    assert (
        unschedulable_message(3, reasons)
        == "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient memory."
    )
    assert unschedulable_message(0, []) == "no nodes available to schedule pods"
