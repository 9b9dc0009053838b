"""Which nodes take the pods of a template: asked of every node once, answered alike for templates that are alike."""

from __future__ import annotations

from collections.abc import Mapping

from tarragon.kube.codec import encode
from tarragon.kube.core import Node, PodSpec
from tarragon.kube.meta import Json, JsonObject
from tarragon.operator.gather import World
from tarragon.plan.capacity import eligible_nodes, pod_spec, why_nowhere
from tarragon.plan.storage import reaches

MOST_KNOWN = 512
"""Kinds of template whose nodes are kept in mind: each costs as much as there are nodes."""


class Eligibility:
    """Thousands of jobs differ in what they train and hardly in where they may: most answers are the same set."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._known: dict[bytes, frozenset[str]] = {}

    def of(self, template: JsonObject, namespace: str) -> frozenset[str]:
        nodes = list(self._world.nodes.objects.values())
        within = reaches(template, namespace, self._world.storage)
        if within:
            return eligible_nodes(template, nodes, within)
        spec = pod_spec(template)
        wanted = encode([spec.node_name, spec.node_selector, _affinity_to_nodes(spec), spec.tolerations])
        if wanted not in self._known:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[wanted] = eligible_nodes(template, nodes)
        return self._known[wanted]

    def why_nowhere(self, template: JsonObject) -> str:
        return why_nowhere(template, self._world.nodes.objects.values())

    @property
    def known(self) -> int:
        """Answers that are kept in mind."""
        return len(self._known)

    def forget(self) -> None:
        """Some node is not what it was."""
        self._known.clear()


def _affinity_to_nodes(spec: PodSpec) -> Json:
    """Not that to pods, which names the job as often as not: no two jobs would be alike."""
    return spec.affinity.get("nodeAffinity") if isinstance(spec.affinity, Mapping) else None


def traits(node: Node | None) -> object:
    """What of a node decides who may run there: heartbeats change nothing of it."""
    return None if node is None else (node.is_ready, node.spec, node.metadata.labels)
