from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tarragon.kube.core import Node
from tarragon.plan.nodes.feasibility import infeasible_reason, template_nodes, unavailable_reason
from tarragon.plan.nodes.replica_requests import pod_spec


def node(name: str = "a", *, labels: dict[str, str] | None = None, ready: str = "True", **spec: Any) -> Node:
    return msgspec.convert(
        {
            "metadata": {"name": name, "labels": labels or {}},
            "spec": spec,
            "status": {"conditions": [{"type": "Ready", "status": ready}], "allocatable": {"cpu": "4", "pods": "110"}},
        },
        Node,
    )


def reason(spec: dict[str, Any], found: Node) -> str | None:
    return infeasible_reason(pod_spec({"spec": spec}), found)


def affinity(*expressions: dict[str, Any], fields: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    term = {"matchExpressions": list(expressions), **({"matchFields": fields} if fields else {})}
    required = {"nodeSelectorTerms": [term]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


@pytest.mark.parametrize(
    ("spec", "found", "why"),
    [
        ({}, node(), None),
        ({}, node(ready="False"), "it is not ready"),
        ({}, node(ready="Unknown"), "it is not ready"),
        ({"nodeName": "a"}, node("a"), None),
        ({"nodeName": "b"}, node("a"), "the pod names another node"),
        ({"nodeSelector": {"zone": "x"}}, node(labels={"zone": "x"}), None),
        ({"nodeSelector": {"zone": "x"}}, node(labels={"zone": "y"}), "it has no label zone=x"),
        ({}, node(unschedulable=True), "its taint node.kubernetes.io/unschedulable is not tolerated"),
        ({"tolerations": [{"operator": "Exists"}]}, node(unschedulable=True), None),
        ({}, node(taints=[{"key": "gpu", "effect": "PreferNoSchedule"}]), None),
        ({}, node(taints=[{"key": "gpu", "effect": "NoSchedule"}]), "its taint gpu is not tolerated"),
        ({}, node(taints=[{"key": "gpu", "effect": "NoExecute"}]), "its taint gpu is not tolerated"),
    ],
)
def test_a_node_says_why_it_does_not_take_a_pod(spec: dict[str, Any], found: Node, why: str | None) -> None:
    assert reason(spec, found) == why


def test_the_model_of_a_gpu_that_is_shared_is_that_of_the_node() -> None:
    labels = {"sharedgpu/gpu_limit": "0.5", "sharedgpu/gpu_model": "Tesla-T4"}
    wanted = pod_spec({"metadata": {"labels": labels}, "spec": {}})

    assert infeasible_reason(wanted, node(labels={"nvidia.com/gpu.product": "Tesla-T4"})) is None
    assert infeasible_reason(wanted, node()) == "it has no label nvidia.com/gpu.product=Tesla-T4"


def test_a_required_affinity_that_fails_is_the_reason() -> None:
    wanted = affinity({"key": "zone", "operator": "In", "values": ["x"]})

    assert reason(wanted, node(labels={"zone": "x"})) is None
    assert reason(wanted, node()) == "it does not match the required node affinity"


def test_an_affinity_may_name_nodes() -> None:
    by_name = affinity(fields=[{"key": "metadata.name", "operator": "In", "values": ["b"]}])

    assert template_nodes({"spec": by_name}, [node("a"), node("b")]).eligible == {"b"}


def test_eligible_are_the_nodes_that_do_not_refuse_once_those_that_are_away_are_back() -> None:
    nodes = [node("a"), node("b", ready="False"), node("c", unschedulable=True), node("d", labels={"zone": "x"})]

    assert template_nodes({}, nodes).eligible == {"a", "b", "c", "d"}
    assert template_nodes({"spec": {"nodeSelector": {"zone": "x"}}}, nodes).eligible == {"d"}


@pytest.mark.parametrize(
    ("key", "effect"),
    [
        ("node.kubernetes.io/not-ready", "NoSchedule"),  # a new node's, which is ready before the taint is gone
        ("node.kubernetes.io/out-of-service", "NoExecute"),
        ("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule"),
    ],
)
def test_a_node_that_is_not_usable_yet_is_unavailable_and_not_unfit(key: str, effect: str) -> None:
    tainted = node(taints=[{"key": key, "effect": effect}])

    assert unavailable_reason(tainted) == f"has the taint {key}"
    assert template_nodes({}, [tainted]).eligible == {"a"}


def pressed(name: str, *others: str, of: str = "memory", **facts: Any) -> Node:
    keys = (*others, f"node.kubernetes.io/{of}-pressure")
    return node(name, taints=[{"key": key, "effect": "NoSchedule"} for key in keys], **facts)


def test_pressure_keeps_pods_off_a_node_only_while_it_lasts() -> None:
    nodes = [node("a"), pressed("b"), pressed("c", "gpu"), pressed("d", of="disk"), pressed("e", ready="False")]

    assert template_nodes({}, nodes).pressured.reasons == {
        "b": "has the taint node.kubernetes.io/memory-pressure",
        "d": "has the taint node.kubernetes.io/disk-pressure",
    }
    assert template_nodes({"spec": {"nodeSelector": {"zone": "x"}}}, nodes).pressured.reasons == {}


def test_pods_that_tolerate_one_pressure_are_kept_off_by_another() -> None:
    tolerates_memory = {"tolerations": [{"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"}]}
    nodes = [pressed("a"), pressed("b", "node.kubernetes.io/pid-pressure")]

    assert template_nodes({"spec": tolerates_memory}, nodes).eligible == {"a"}
    assert template_nodes({"spec": tolerates_memory}, nodes).pressured.reasons == {
        "b": "has the taint node.kubernetes.io/pid-pressure"
    }


@pytest.mark.parametrize("key", ["gpu", "node.kubernetes.io/memory-pressure", "node.kubernetes.io/os"])
def test_any_other_taint_makes_a_node_unfit_for_pods_that_do_not_tolerate_it(key: str) -> None:
    tainted = node(taints=[{"key": key, "effect": "NoSchedule"}])

    assert unavailable_reason(tainted) == ""
    assert template_nodes({}, [tainted]).eligible == set()
    assert template_nodes({"spec": {"tolerations": [{"key": key, "operator": "Exists"}]}}, [tainted]).eligible == {"a"}
