"""Which nodes take the pods of a template: asked of every node once, answered alike for templates that are alike."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tarragon.kube.codec import encode
from tarragon.kube.core import Node, PodSpec
from tarragon.kube.meta import Json, JsonObject, Key
from tarragon.operator.informers.informers import World
from tarragon.plan.nodes.capacity import eligible_nodes, pod_spec, why_nowhere
from tarragon.plan.nodes.predicates import SOFT_EFFECT
from tarragon.plan.nodes.preferences import Scores, of_nodes, prefers_nodes
from tarragon.plan.nodes.storage import reaches

MOST_KNOWN = 512
"""Kinds of template whose nodes are kept in mind: each costs as much as there are nodes."""

Question = bytes
"""What a template asks of nodes; equal for templates that any nodes answer alike."""


@dataclass(slots=True)
class _Answer:
    template: JsonObject
    nodes: frozenset[str]


class Eligibility:
    """Thousands of jobs differ in what they train and hardly in where they may: most answers are the same set."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._known: dict[Question, _Answer] = {}
        self._liked: dict[Question, Scores] = {}
        self._choosy: set[Question] = set()
        """Those that like some nodes better than others."""
        self._softly_tainted: set[str] = set()
        self._is_newly_tainted = False

    def of(self, template: JsonObject, namespace: str, question: Question | None = None) -> frozenset[str]:
        """`question` is what `question` has said of this template."""
        within = reaches(template, namespace, self._world.storage)
        if within:
            return eligible_nodes(template, list(self._world.nodes.objects.values()), within)
        wanted = self.question(template) if question is None else question
        if wanted not in self._known:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            nodes = eligible_nodes(template, self._world.nodes.objects.values())
            self._known[wanted] = _Answer(template, nodes)
        return self._known[wanted].nodes

    def liked(self, template: JsonObject, question: Question) -> Scores:
        """Which nodes its template likes better than others."""
        if question not in self._liked:
            if len(self._liked) >= MOST_KNOWN:
                self._liked.clear()
                self._choosy.clear()
            scores = self._liked[question] = of_nodes(pod_spec(template), self._world.nodes.objects.values())
            if scores or prefers_nodes(pod_spec(template)):
                self._choosy.add(question)
        return self._liked[question]

    def liked_otherwise(self) -> Collection[Question]:
        """Those to ask about again, as nodes have changed: who likes one of them better likes the others less."""
        changed = list(self._liked) if self._is_newly_tainted else [one for one in self._choosy if one in self._liked]
        for question in changed:
            del self._liked[question]
        self._choosy.clear()
        self._is_newly_tainted = False
        return changed

    def question(self, template: JsonObject) -> Question:
        spec = pod_spec(template)
        return encode([spec.node_name, spec.node_selector, _affinity_to_nodes(spec), spec.tolerations])

    def why_nowhere(self, template: JsonObject) -> str:
        return why_nowhere(template, self._world.nodes.objects.values())

    @property
    def known(self) -> int:
        """Answers that are kept in mind."""
        return len(self._known)

    def holds(self, question: Question) -> bool:
        """Whether its answer is in mind, and so is kept right."""
        return question in self._known

    def node_changed(self, key: Key, new: Node | None) -> set[Question]:
        """Those that are answered otherwise now. A node that is only away for a while changes no answer."""
        if new is not None and any(taint.effect == SOFT_EFFECT for taint in new.spec.taints):
            self._is_newly_tainted |= key.name not in self._softly_tainted
            self._softly_tainted.add(key.name)
        else:
            self._softly_tainted.discard(key.name)
        changed: set[Question] = set()
        for question, answer in self._known.items():
            takes = new is not None and bool(eligible_nodes(answer.template, [new]))
            if takes != (key.name in answer.nodes):
                changed.add(question)
                answer.nodes = answer.nodes | {key.name} if takes else answer.nodes - {key.name}
        return changed


def _affinity_to_nodes(spec: PodSpec) -> Json:
    """Not that to pods, which names the job as often as not: no two jobs would be alike."""
    return spec.affinity.get("nodeAffinity") if isinstance(spec.affinity, Mapping) else None


def traits(node: Node | None) -> object:
    """What of a node decides who may run there: heartbeats change nothing of it."""
    return None if node is None else (node.is_ready, node.spec, node.metadata.labels)
