from __future__ import annotations

from typing import Any

import msgspec

from tarragon.kube.core import Node, Pod
from tarragon.kube.scheduling.pod_requests import scheduling_request
from tarragon.localcluster.scheduler.filters import filter_reasons, unschedulable_message

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
    return filter_reasons(one, target_node, {})


def test_a_pod_that_requests_no_more_than_is_free_fits() -> None:
    assert why_not(pod(requests={"cpu": "4", "memory": "8Gi"}), node()) == []


def test_each_insufficient_resource_is_named() -> None:
    greedy = pod(requests={"cpu": "4001m", "memory": "9Gi", "nvidia.com/gpu": "1"})

    assert why_not(greedy, node()) == ["Insufficient cpu", "Insufficient memory", "Insufficient nvidia.com/gpu"]


def test_allocated_resources_are_not_free() -> None:
    used = scheduling_request(pod(requests={"cpu": "3"}).spec)

    assert filter_reasons(pod(requests={"cpu": "2"}), node(), used) == ["Insufficient cpu"]


def test_overcommitted_resources_are_not_checked() -> None:
    sharing = node(annotations={"tarragon.dev/overcommit": "cpu"})

    assert why_not(pod(requests={"cpu": "20"}), sharing) == []
    assert why_not(pod(requests={"cpu": "20", "memory": "9Gi"}), sharing) == ["Insufficient memory"]


def test_a_node_runs_no_more_pods_than_its_pod_capacity() -> None:
    full = node(status={"allocatable": {"pods": "0"}})

    assert why_not(pod(), full) == ["Too many pods"]


def test_a_cordoned_node_accepts_only_pods_that_tolerate_it() -> None:
    cordoned = node(unschedulable=True)
    tolerant = pod(tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}])

    assert why_not(pod(), cordoned) == ["node(s) were unschedulable"]
    assert why_not(tolerant, cordoned) == []


def test_a_node_that_is_not_ready_accepts_no_pods() -> None:
    assert why_not(pod(), node(status={"conditions": []})) == [
        "node(s) had untolerated taint {node.kubernetes.io/not-ready: }"
    ]


def test_a_taint_repels_pods_that_do_not_tolerate_it() -> None:
    tainted = node(taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])

    assert why_not(pod(), tainted) == ["node(s) had untolerated taint {gpu: yes}"]
    assert why_not(pod(tolerations=[{"key": "gpu", "value": "yes"}]), tainted) == []


def test_node_selectors_and_required_node_affinity_have_one_reason() -> None:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]}
    choosy = pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})

    assert why_not(choosy, node(labels={"disk": "ssd"})) == []
    assert why_not(choosy, node()) == ["node(s) didn't match Pod's node affinity/selector"]
    assert why_not(pod(nodeSelector={"disk": "ssd"}), node()) == ["node(s) didn't match Pod's node affinity/selector"]


def test_host_ports_conflict_unless_the_node_says_that_each_pod_gets_its_own() -> None:
    serving = pod(containers=[{"name": "main", "ports": [{"containerPort": 80, "hostPort": 8080}]}])
    used = scheduling_request(serving.spec)
    own_ports = node(annotations={"tarragon.dev/overcommit": "cpu,hostPorts"})

    assert filter_reasons(serving, node(), used) == ["node(s) didn't have free ports for the requested pod ports"]
    assert filter_reasons(serving, own_ports, used) == []


def test_the_summary_counts_equal_reasons_like_kube_scheduler() -> None:
    reasons = ["Insufficient memory", "node(s) were unschedulable", "Insufficient memory"]

    assert (
        unschedulable_message(3, reasons)
        == "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient memory."
    )
    assert unschedulable_message(0, []) == "no nodes available to schedule pods"
