"""Scores of nodes for a pod, by its soft preferences, with the weights of kube-scheduler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from tarragon.kube.affinity import affinity
from tarragon.kube.core import Node, PodSpec
from tarragon.plan.nodes.affinity_terms import Term
from tarragon.plan.nodes.neighbours import Neighbours
from tarragon.plan.nodes.predicates import is_matched, unwelcome
from tarragon.plan.nodes.topology import Member, Sites

OF_TAINTS, OF_NODES, OF_PODS, OF_SPREAD = 3, 2, 2, 2
"""The weights of the score plug-ins of kube-scheduler, as of Kubernetes 1.26."""
FULL = 100
"""The normalized score of the best node before weighting; the worst one has 0."""

Scores = Mapping[str, int]
"""Score by node name; missing nodes have 0."""


def of_nodes(spec: PodSpec, nodes: Iterable[Node]) -> Scores:
    """Score nodes by preferred node affinity and by PreferNoSchedule taints."""
    node_list = list(nodes)
    preferred = affinity(spec.affinity).node_affinity.preferred
    affinity_scores = {
        node.metadata.name: sum(term.weight for term in preferred if is_matched(term.preference, node))
        for node in (node_list if preferred else ())
    }
    taint_scores = {node.metadata.name: -unwelcome(spec, node) for node in node_list if node.spec.taints}
    names = [node.metadata.name for node in node_list]
    return summed([_scaled(names, affinity_scores, OF_NODES), _scaled(names, taint_scores, OF_TAINTS)])


def prefers_nodes(spec: PodSpec) -> bool:
    """Whether the pod has a preferred node affinity."""
    return bool(affinity(spec.affinity).node_affinity.preferred)


def of_pods(member: Member, topology: Sites, placed_pods: Neighbours) -> Scores:
    """Score nodes by preferred pod (anti-)affinity and by soft topology spread constraints.

    Only pods that are already placed count: the scheduling policy places a gang's own replicas close to each other.
    """
    affinity_counts: Counter[str] = Counter()
    for term in member.bonds.liked:
        affinity_counts.update(
            {name: term.weight * count for name, count in _counts(term, topology, placed_pods).items()}
        )
    spread_scores: Counter[str] = Counter()
    for spreading in member.bonds.spread_liked:
        spread_scores.update({name: -count for name, count in _counts(spreading.term, topology, placed_pods).items()})
    return summed(
        [_scaled(topology.nodes, affinity_counts, OF_PODS), _scaled(topology.nodes, spread_scores, OF_SPREAD)]
    )


def summed(score_maps: Iterable[Scores]) -> Scores:
    total: Counter[str] = Counter()
    for scores in score_maps:
        total.update(scores)
    return {name: score for name, score in total.items() if score}


def _counts(term: Term, topology: Sites, placed_pods: Neighbours) -> Mapping[str, int]:
    """Return by node the number of selected pods in the node's domain."""
    domains = topology.domains(term.topology)
    counts = Counter(
        domains[pod.spec.node_name] for pod in placed_pods.selected([term]) if pod.spec.node_name in domains
    )
    return {name: counts[domain] for name, domain in domains.items() if domain in counts} if counts else {}


def _scaled(names: Iterable[str], raw: Mapping[str, int], weight: int) -> Scores:
    """Normalize raw scores so that the worst node has 0 and the best one has weight * FULL."""
    if not any(raw.values()):
        return {}
    scores = {name: raw.get(name, 0) for name in names}
    lowest, highest = min(scores.values()), max(scores.values())
    if lowest == highest:
        return {}
    return {name: weight * FULL * (score - lowest) // (highest - lowest) for name, score in scores.items()}
