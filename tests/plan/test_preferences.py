from __future__ import annotations

from typing import Any

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.plan.nodes.pod_index import PodIndex
from tarragon.plan.nodes.preferences import score_by_nodes, score_by_pods, sum_scores
from tarragon.plan.nodes.replica_requests import pod_spec
from tarragon.plan.nodes.topology import NodeTopology, ReplicaTypePods
from tests.plan.test_feasibility import node
from tests.plan.test_topology import FOUR, pod, spread, term

Json = dict[str, Any]


def preferred(*weighted: tuple[int, Json]) -> Json:
    terms = [{"weight": weight, "preference": {"matchExpressions": [one]}} for weight, one in weighted]
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}}


def of_member(affinity: Json | None = None, **spec: Any) -> ReplicaTypePods:
    read = pod_spec({"spec": {**spec, **({"affinity": affinity} if affinity else {})}})
    return ReplicaTypePods.of(WORKER, "n", {"app": "x"}, read)


def liked(kind: str, weight: int, one: Json) -> Json:
    return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": weight, "podAffinityTerm": one}]}}


def test_who_prefers_nothing_likes_all_nodes_alike() -> None:
    assert score_by_nodes(pod_spec({}), [node("a"), node("b", labels={"disk": "ssd"})]) == {}
    assert score_by_pods(of_member(), NodeTopology(FOUR), PodIndex([pod("a1", app="x")])) == {}


def test_weights_of_preferred_node_affinity_add_up() -> None:
    nodes = [node("a", labels={"disk": "ssd", "zone": "x"}), node("b", labels={"zone": "x"}), node("c")]
    spec = preferred(
        (30, {"key": "disk", "operator": "Exists"}), (10, {"key": "zone", "operator": "In", "values": ["x"]})
    )

    assert score_by_nodes(pod_spec({"spec": spec}), nodes) == {"a": 200, "b": 50}


def test_soft_taints_are_shunned_unless_they_are_tolerated() -> None:
    taint = {"key": "spot", "value": "yes", "effect": "PreferNoSchedule"}
    nodes = [node("a", taints=[taint]), node("b")]

    assert score_by_nodes(pod_spec({}), nodes) == {"b": 300}
    assert score_by_nodes(pod_spec({"spec": {"tolerations": [{"key": "spot", "operator": "Exists"}]}}), nodes) == {}


def test_preferred_pods_draw_and_unloved_ones_repel_by_how_many_they_are() -> None:
    pods = PodIndex([pod("a1", role="cache"), pod("a2", role="cache"), pod("b1", role="cache")])

    draws = of_member(liked("podAffinity", 5, term(role="cache")))
    repels = of_member(liked("podAntiAffinity", 5, term(role="cache")))

    assert score_by_pods(draws, NodeTopology(FOUR), pods) == {"a1": 200, "a2": 200, "b1": 100}
    assert score_by_pods(repels, NodeTopology(FOUR), pods) == {"b1": 100, "bare": 200}


def test_a_spread_that_need_not_be_kept_likes_the_emptier_domain() -> None:
    soft = of_member(**spread(whenUnsatisfiable="ScheduleAnyway"))

    assert score_by_pods(soft, NodeTopology(FOUR[:3]), PodIndex([pod("a1", app="x")])) == {"b1": 200}


def test_preferences_of_several_kinds_add_up() -> None:
    assert sum_scores([{"a": 1}, {"a": 2, "b": 3}]) == {"a": 3, "b": 3}
