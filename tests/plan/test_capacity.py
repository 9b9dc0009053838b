from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tarragon.base.quantity import parse_milli
from tarragon.base.resources import CPU, MEMORY, NVIDIA_GPU, PODS
from tarragon.kube.core import Node
from tarragon.plan.nodes.capacity import eligible_nodes, node_capacity, pod_spec, template_request
from tarragon.plan.nodes.predicates import infeasible_reason


def container(requests: dict[str, Any] | None = None, limits: dict[str, Any] | None = None, **fields: Any) -> Any:
    return {"name": "c", "resources": {"requests": requests or {}, "limits": limits or {}}, **fields}


def request(*containers: Any, **spec: Any) -> dict[str, int]:
    """Without the pod's own slot, which is there every time."""
    found = dict(template_request({"spec": {"containers": list(containers), **spec}}))
    assert found.pop(PODS) == 1000
    return found


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


def test_containers_that_run_together_add_up() -> None:
    assert request(container({"cpu": "500m", "memory": "1Gi"}), container({"cpu": 1})) == {
        CPU: 1500,
        MEMORY: parse_milli("1Gi"),
    }


def test_a_limit_stands_for_a_request_that_is_missing() -> None:
    limits = {"cpu": "4", "memory": "8Gi", NVIDIA_GPU: 2}

    assert request(container({"cpu": "1"}, limits)) == {CPU: 1000, MEMORY: parse_milli("8Gi"), NVIDIA_GPU: 2000}


def test_what_runs_before_counts_only_where_it_needs_more() -> None:
    init = [container({"cpu": 3, "memory": "1Gi"}), container({"cpu": 1, "memory": "3Gi"})]

    assert request(container({"cpu": 2, "memory": "2Gi"}), initContainers=init) == {
        CPU: 3000,
        MEMORY: parse_milli("3Gi"),
    }


def test_a_sidecar_adds_up_with_the_rest_and_with_what_starts_after_it() -> None:
    init = [container({"cpu": 1}, restartPolicy="Always"), container({"cpu": 5})]

    assert request(container({"cpu": 2}), initContainers=init) == {CPU: 6000}
    assert request(container({"cpu": 2}), initContainers=init[:1]) == {CPU: 3000}


def test_overhead_comes_on_top_and_amounts_of_the_whole_pod_stand_for_its_containers() -> None:
    assert request(container({"cpu": 1}), overhead={"cpu": "250m"}) == {CPU: 1250}
    assert request(container({"cpu": 1}), resources={"requests": {"cpu": 3}}) == {CPU: 3000}


def test_a_pod_that_asks_for_nothing_still_takes_a_slot() -> None:
    assert template_request({}) == {PODS: 1000}


def test_what_other_people_s_pods_ask_for_need_not_be_right() -> None:
    assert request(container({"cpu": "plenty"})) == {CPU: 0}


def test_nobody_asks_for_less_than_nothing() -> None:
    found = template_request({"spec": {"containers": [{"resources": {"requests": {"cpu": "-4", "memory": "-1Gi"}}}]}})
    assert found == {CPU: 0, MEMORY: 0, PODS: 1000}


def test_a_node_offers_what_is_allocatable() -> None:
    assert node_capacity(node()) == {CPU: 4000, PODS: 110_000}
    only_capacity = msgspec.convert({"status": {"capacity": {"cpu": 2}}}, Node)
    assert node_capacity(only_capacity) == {CPU: 2000}


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


@pytest.mark.parametrize(
    ("toleration", "holds"),
    [
        ({"key": "gpu", "value": "a100", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "value": "a100"}, True),
        ({"key": "gpu", "operator": "Equal", "value": "h100"}, False),
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "tpu", "operator": "Exists"}, False),
        ({"operator": "Exists"}, True),
        ({"key": "gpu"}, False),
    ],
)
def test_a_toleration_is_for_its_taint(toleration: dict[str, Any], holds: bool) -> None:  # noqa: FBT001 - a column
    tainted = node(taints=[{"key": "gpu", "value": "a100", "effect": "NoSchedule"}])

    assert (reason({"tolerations": [toleration]}, tainted) is None) is holds


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        ({"key": "zone", "operator": "In", "values": ["x", "y"]}, True),
        ({"key": "zone", "operator": "In", "values": ["y"]}, False),
        ({"key": "rack", "operator": "In", "values": ["1"]}, False),
        ({"key": "zone", "operator": "NotIn", "values": ["y"]}, True),
        ({"key": "rack", "operator": "NotIn", "values": ["1"]}, True),
        ({"key": "zone", "operator": "Exists"}, True),
        ({"key": "rack", "operator": "Exists"}, False),
        ({"key": "rack", "operator": "DoesNotExist"}, True),
        ({"key": "gpus", "operator": "Gt", "values": ["7"]}, True),
        ({"key": "gpus", "operator": "Gt", "values": ["8"]}, False),
        ({"key": "gpus", "operator": "Lt", "values": ["9"]}, True),
        ({"key": "zone", "operator": "Gt", "values": ["1"]}, False),
        ({"key": "rack", "operator": "Lt", "values": ["1"]}, False),
        ({"key": "zone", "operator": "Like", "values": ["x"]}, False),
    ],
)
def test_a_required_affinity_is_compared_with_the_labels(expression: dict[str, Any], holds: bool) -> None:  # noqa: FBT001 - a column
    found = node(labels={"zone": "x", "gpus": "8"})

    assert (reason(affinity(expression), found) is None) is holds


def test_the_terms_of_an_affinity_are_alternatives_and_an_empty_one_matches_nothing() -> None:
    zones = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in "xy"]

    def required(*terms: Any) -> dict[str, Any]:
        inner = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
        return {"affinity": {"nodeAffinity": inner}}

    assert reason(required(*zones), node(labels={"zone": "y"})) is None
    assert reason(required({}), node()) == "it does not match the required node affinity"
    assert reason({"affinity": {"nodeAffinity": {}}}, node()) is None


def test_an_affinity_may_name_nodes() -> None:
    by_name = affinity(fields=[{"key": "metadata.name", "operator": "In", "values": ["b"]}])

    assert eligible_nodes({"spec": by_name}, [node("a"), node("b")]) == {"b"}


def test_eligible_are_the_nodes_that_do_not_refuse_once_those_that_are_away_are_back() -> None:
    nodes = [node("a"), node("b", ready="False"), node("c", unschedulable=True), node("d", labels={"zone": "x"})]

    assert eligible_nodes({}, nodes) == {"a", "b", "c", "d"}
    assert eligible_nodes({"spec": {"nodeSelector": {"zone": "x"}}}, nodes) == {"d"}


def test_numbers_in_labels_are_read_as_kubernetes_reads_them() -> None:
    """Python would take more for a number."""
    above = {"key": "gpus", "operator": "Gt", "values": ["4"]}

    assert reason(affinity(above), node(labels={"gpus": "5"})) is None
    assert reason(affinity(above), node(labels={"gpus": "1_0"})) is not None


def test_what_is_limited_for_a_whole_pod_counts_where_no_container_asks() -> None:
    limits = {"limits": {"cpu": 4, "memory": "1Gi"}}

    assert request(container({"cpu": 1}), resources=limits) == {CPU: 1000, MEMORY: parse_milli("1Gi")}


def test_only_cpu_comes_in_parts() -> None:
    parts = {"cpu": "100m", "memory": "1500m"}

    assert request(container(parts), container(parts)) == {CPU: 200, MEMORY: 4000}
