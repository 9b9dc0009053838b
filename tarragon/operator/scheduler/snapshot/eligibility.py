"""Computes the eligible nodes of pod templates, cached by the templates' node constraints."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tarragon.kube.codec import encode
from tarragon.kube.core import Node, PodSpec
from tarragon.kube.meta import Json, JsonObject, Key
from tarragon.kube.scheduling.taints import SOFT_EFFECT
from tarragon.operator.informers.informers import Informers
from tarragon.plan.nodes.feasibility import (
    TemplateNodes,
    no_eligible_node_message,
    permanent_infeasible_reason,
    pressure_reason,
    template_nodes,
)
from tarragon.plan.nodes.preferences import Scores, has_preferred_node_affinity, score_by_nodes
from tarragon.plan.nodes.replica_requests import pod_spec
from tarragon.plan.nodes.storage import volume_topologies
from tarragon.scheduling.api.snapshot import PressuredNodes

MAX_CACHED = 512
"""Maximum number of cached answers; the size of each grows with the number of nodes."""

ConstraintKey = bytes
"""A template's node constraints, encoded; templates with equal constraints have the same eligible nodes."""


@dataclass(slots=True)
class _Answer:
    spec: PodSpec
    nodes: TemplateNodes


class EligibilityCache:
    """Caches eligible nodes and node preferences: thousands of jobs share a few combinations of constraints."""

    def __init__(self, informers: Informers) -> None:
        self._informers = informers
        self._answers: dict[ConstraintKey, _Answer] = {}
        self._scores: dict[ConstraintKey, Scores] = {}
        self._with_preferences: set[ConstraintKey] = set()
        """Constraints that prefer some nodes to others."""
        self._softly_tainted: set[str] = set()
        self._has_new_soft_taint = False

    def nodes_of(self, template: JsonObject, namespace: str, constraints: ConstraintKey | None = None) -> TemplateNodes:
        """The nodes of the template. `constraints` is its `constraint_key`, if the caller has it."""
        reachable = volume_topologies(template, namespace, self._informers.storage)
        if reachable:
            return template_nodes(template, list(self._informers.nodes.objects.values()), reachable)
        key = self.constraint_key(template) if constraints is None else constraints
        if key not in self._answers:
            if len(self._answers) >= MAX_CACHED:
                self._answers.clear()
            nodes = template_nodes(template, list(self._informers.nodes.objects.values()))
            self._answers[key] = _Answer(pod_spec(template), nodes)
        return self._answers[key].nodes

    def node_scores(self, template: JsonObject, constraints: ConstraintKey) -> Scores:
        """The node preference scores of the template."""
        if constraints not in self._scores:
            if len(self._scores) >= MAX_CACHED:
                self._scores.clear()
                self._with_preferences.clear()
            scores = self._scores[constraints] = score_by_nodes(
                pod_spec(template), self._informers.nodes.objects.values()
            )
            if scores or has_preferred_node_affinity(pod_spec(template)):
                self._with_preferences.add(constraints)
        return self._scores[constraints]

    def drop_changed_scores(self) -> Collection[ConstraintKey]:
        """Drop and return the constraint keys whose scores a change of nodes may have changed: scores are relative."""
        changed = (
            list(self._scores)
            if self._has_new_soft_taint
            else [constraints for constraints in self._with_preferences if constraints in self._scores]
        )
        for constraints in changed:
            del self._scores[constraints]
        self._with_preferences.clear()
        self._has_new_soft_taint = False
        return changed

    def constraint_key(self, template: JsonObject) -> ConstraintKey:
        spec = pod_spec(template)
        return encode([spec.node_name, spec.node_selector, _affinity_to_nodes(spec), spec.tolerations])

    def ineligible_reason(self, template: JsonObject) -> str:
        return no_eligible_node_message(template, self._informers.nodes.objects.values())

    @property
    def cached_count(self) -> int:
        """Number of cached answers."""
        return len(self._answers)

    def is_cached(self, constraints: ConstraintKey) -> bool:
        """Whether the answer is cached, and therefore updated when nodes change."""
        return constraints in self._answers

    def node_changed(self, key: Key, new: Node | None) -> set[ConstraintKey]:
        """Update the cached answers for the node and return the changed constraint keys.

        Readiness changes no answer.
        """
        if new is not None and any(taint.effect == SOFT_EFFECT for taint in new.spec.taints):
            self._has_new_soft_taint |= key.name not in self._softly_tainted
            self._softly_tainted.add(key.name)
        else:
            self._softly_tainted.discard(key.name)
        changed: set[ConstraintKey] = set()
        for constraints, answer in self._answers.items():
            nodes = _with_node(answer.spec, answer.nodes, key.name, new)
            if nodes is not answer.nodes:
                changed.add(constraints)
                answer.nodes = nodes
        return changed


def _with_node(spec: PodSpec, nodes: TemplateNodes, name: str, new: Node | None) -> TemplateNodes:
    """Returns the nodes after this one has changed: the same object if nothing has. Demands keep the former one."""
    is_eligible = new is not None and permanent_infeasible_reason(spec, new) is None
    pressure = "" if new is None or is_eligible else pressure_reason(spec, new)
    eligible, pressured = nodes.eligible, nodes.pressured
    if is_eligible != (name in eligible):
        eligible = eligible | {name} if is_eligible else eligible - {name}
    if pressure != pressured.reasons.get(name, ""):
        reasons = {**pressured.reasons}  # thousands of entries: a copy is many times as fast as a comprehension
        reasons.pop(name, None)
        if pressure:
            reasons[name] = pressure
        pressured = PressuredNodes(reasons)
    if eligible is nodes.eligible and pressured is nodes.pressured:
        return nodes
    return TemplateNodes(eligible, pressured)


def _affinity_to_nodes(spec: PodSpec) -> Json:
    """The template's node affinity. Pod affinity is left out: it often names the job, so no two keys would be equal."""
    return spec.affinity.get("nodeAffinity") if isinstance(spec.affinity, Mapping) else None


def scheduling_traits(node: Node | None) -> object:
    """The part of a node that decides which pods may run there; heartbeats do not change it."""
    return None if node is None else (node.is_ready, node.spec, node.metadata.labels)
