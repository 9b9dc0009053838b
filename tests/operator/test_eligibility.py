from __future__ import annotations

import random
from typing import Any

import msgspec

from tarragon.base.clock import FakeClock
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.kube.core import Node
from tarragon.kube.meta import Key
from tarragon.operator.informers.informers import Informers
from tarragon.operator.scheduler.snapshot.eligibility import MAX_CACHED, EligibilityCache
from tarragon.plan.nodes.feasibility import TemplateNodes
from tarragon.plan.objects.settings import OperatorSettings
from tarragon.scheduling.api.snapshot import NO_PRESSURE, PressuredNodes
from tests.localcluster.controllers.world import EmbeddedCluster as Embedded
from tests.operator.stage import Stage

Json = dict[str, Any]


def template(**spec: Any) -> Json:
    return {"spec": {"containers": [{"name": "tensorflow", "image": "i"}], **spec}}


def apart_from(job: str) -> Json:
    """What keeps the replicas of a job from each other's nodes, as operators' examples have it."""
    term = {"labelSelector": {"matchLabels": {"training.kubeflow.org/job-name": job}}, "topologyKey": "a/zone"}
    return template(affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})


def eligibility(world: Embedded) -> EligibilityCache:
    seen = Informers(world.client, FRAMEWORKS, FakeClock(), OperatorSettings(), random.Random(1))
    return EligibilityCache(seen)


async def test_jobs_that_differ_in_whom_they_keep_away_from_share_one_answer(stage: Stage) -> None:
    """Else each job that ever was would leave as much behind as there are nodes."""
    asked = eligibility(stage.world)
    asked.nodes_of(apart_from("a"), "default")
    asked.nodes_of(apart_from("b"), "default")
    assert asked.cached_count == 1


async def test_no_more_than_so_many_answers_are_kept_in_mind(stage: Stage) -> None:
    asked = eligibility(stage.world)
    for number in range(MAX_CACHED):
        asked.nodes_of(template(nodeSelector={"a": str(number)}), "default")
    assert asked.cached_count == MAX_CACHED

    asked.nodes_of(template(nodeSelector={"a": "one more"}), "default")
    assert asked.cached_count == 1


PRESSURE = {"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"}


def node(name: str, *taints: Json) -> Node:
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    return msgspec.convert({"metadata": {"name": name}, "spec": {"taints": taints}, "status": ready}, Node)


async def test_a_node_that_changes_changes_the_answers_but_not_those_that_were_given(stage: Stage) -> None:
    asked = eligibility(stage.world)
    tolerant = template(tolerations=[{"key": PRESSURE["key"], "operator": "Exists"}])
    for name in ("a", "b"):
        asked.nodes_of(template(), "default")
        asked.nodes_of(tolerant, "default")
        asked.node_changed(Key("", name), node(name, PRESSURE))
    before, tolerated = asked.nodes_of(template(), "default"), asked.nodes_of(tolerant, "default")
    reason = "has the taint node.kubernetes.io/memory-pressure"

    assert asked.node_changed(Key("", "a"), node("a", PRESSURE)) == set()
    assert asked.nodes_of(template(), "default") is before
    assert asked.node_changed(Key("", "a"), node("a")) == {asked.constraint_key(template())}
    assert asked.nodes_of(template(), "default") == TemplateNodes(frozenset({"a"}), PressuredNodes({"b": reason}))
    assert before == TemplateNodes(frozenset(), PressuredNodes({"a": reason, "b": reason}))
    assert asked.nodes_of(tolerant, "default") is tolerated
    asked.node_changed(Key("", "b"), None)
    assert asked.nodes_of(template(), "default") == TemplateNodes(frozenset({"a"}), NO_PRESSURE)
