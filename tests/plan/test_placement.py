"""How a pod is told where to run."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tarragon.kube.core import Node, PodSpec
from tarragon.plan.nodes.feasibility import infeasible_reason
from tarragon.plan.objects.placement import REQUIRED, Placement, assigned_node, with_node_affinity
from tarragon.plan.objects.settings import OperatorSettings
from tests.plan.world import World, manifest

BY_AFFINITY = OperatorSettings(placement=Placement.AFFINITY)


def node(name: str, **labels: str) -> Node:
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    return msgspec.convert({"metadata": {"name": name, "labels": labels}, "status": ready}, Node)


def nodes_of(spec: Any, *nodes: Node) -> list[str]:
    """Where kube-scheduler may put the pod."""
    read = msgspec.convert(spec, PodSpec)
    return [each.metadata.name for each in nodes if infeasible_reason(read, each) is None]


def requiring(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}}


def label(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


def test_a_pod_with_an_affinity_to_a_node_may_run_there_and_nowhere_else() -> None:
    assert nodes_of(with_node_affinity({}, "b"), node("a"), node("b"), node("c")) == ["b"]


@pytest.mark.parametrize(("place", "found"), [("v", ["v"]), ("t", ["t"]), ("x", [])])
def test_what_the_user_requires_of_a_node_still_holds(place: str, found: list[str]) -> None:
    """The terms are alternatives: a node of its own as one more term would undo the others."""
    spec = requiring(
        {"matchExpressions": [label("gpu", "v100")]}, {"matchExpressions": [label("gpu", "t4"), label("zone", "1")]}
    )
    nodes = [node("v", gpu="v100"), node("t", gpu="t4", zone="1"), node("x", gpu="t4")]

    assert nodes_of(with_node_affinity(spec, place), *nodes) == found


def test_a_term_that_asks_nothing_matches_nothing_before_and_after() -> None:
    spec = requiring({}, {"matchExpressions": [label("gpu", "v100")]})

    assert nodes_of(with_node_affinity(spec, "x"), node("x")) == []


def test_other_affinities_are_left_as_they_are() -> None:
    preferred = [{"weight": 1, "preference": {"matchExpressions": [label("zone", "1")]}}]
    spec = {
        "affinity": {
            "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred},
            "podAntiAffinity": {"x": []},
        }
    }
    placed = with_node_affinity(spec, "n")["affinity"]

    assert placed["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] == preferred
    assert placed["podAntiAffinity"] == {"x": []}


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        ({"nodeName": "n"}, "n"),
        (with_node_affinity({}, "n"), "n"),
        (
            with_node_affinity(
                requiring({"matchExpressions": [label("a", "b")]}, {"matchFields": [label("c", "d")]}), "n"
            ),
            "n",
        ),
        (requiring({"matchExpressions": [label("a", "b")]}), ""),
        ({"affinity": {"nodeAffinity": [7]}}, ""),
        ({}, ""),
    ],
)
def test_the_place_of_a_pod_can_be_read_before_it_is_bound(spec: Any, place: str) -> None:
    assert assigned_node(msgspec.convert(spec, PodSpec)) == place


def test_by_affinity_kube_scheduler_is_asked_even_where_a_manifest_names_us() -> None:
    job = manifest({"Worker": 1})
    job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["schedulerName"] = "tarragon"
    world = World(job, BY_AFFINITY)
    world.settle()
    world.admit()
    world.settle()
    spec = world.pods["dist-worker-0"]["spec"]

    assert "nodeName" not in spec
    assert "schedulerName" not in spec
    assert assigned_node(msgspec.convert(spec, PodSpec)) == "node-a"


def test_a_pod_that_waits_to_be_bound_to_a_place_that_it_has_lost_is_made_anew() -> None:
    world = World(manifest({"Worker": 1}), BY_AFFINITY)
    world.settle()
    world.admit()
    world.settle()
    world.patch_job({"status": {"tarragon": {"admission": {"nodes": {"Worker": {"node-a": None, "node-c": "0"}}}}}})
    world.settle()

    assert assigned_node(msgspec.convert(world.pods["dist-worker-0"]["spec"], PodSpec)) == "node-c"


@pytest.mark.parametrize(
    "asked",
    [
        {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "not-there-yet"}}]},
        {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]},
        {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]},
    ],
)
def test_what_only_kube_scheduler_binds_is_placed_by_affinity_whatever_the_setting(asked: dict[str, Any]) -> None:
    job = manifest({"Worker": 1})
    job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"] |= asked
    world = World(job)
    world.settle()
    world.admit()
    world.settle()

    assert "nodeName" not in world.pods["dist-worker-0"]["spec"]
