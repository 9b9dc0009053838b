"""Which nodes take the pods of a template: asked of every node once, answered alike for templates that are alike."""

from __future__ import annotations

from tarragon.kube.codec import encode
from tarragon.kube.core import Node
from tarragon.kube.meta import JsonObject
from tarragon.operator.gather import World
from tarragon.plan.capacity import eligible_nodes, pod_spec
from tarragon.plan.storage import reaches


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
        wanted = encode([spec.node_name, spec.node_selector, spec.affinity, spec.tolerations])
        if wanted not in self._known:
            self._known[wanted] = eligible_nodes(template, nodes)
        return self._known[wanted]

    def forget(self) -> None:
        """Some node is not what it was."""
        self._known.clear()


def traits(node: Node | None) -> object:
    """What of a node decides who may run there: heartbeats change nothing of it."""
    return None if node is None else (node.is_ready, node.spec, node.metadata.labels)
