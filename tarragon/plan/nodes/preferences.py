"""Scores of nodes for a pod, by its soft preferences, with the weights of kube-scheduler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from tarragon.kube.core import Node, PodSpec
from tarragon.kube.scheduling.affinity import decode_affinity
from tarragon.kube.scheduling.affinity_terms import PodTerm
from tarragon.kube.scheduling.node_affinity import matches_node_selector_term
from tarragon.kube.scheduling.taints import untolerated_soft_taints
from tarragon.plan.nodes.pod_index import PodIndex
from tarragon.plan.nodes.topology import NodeTopology, ReplicaTypePods

TAINT_WEIGHT, NODE_AFFINITY_WEIGHT, POD_AFFINITY_WEIGHT, SPREAD_WEIGHT = 3, 2, 2, 2
"""The weights of the score plug-ins of kube-scheduler, as of Kubernetes 1.26."""
MAX_NODE_SCORE = 100
"""The normalized score of the best node before weighting; the worst one has 0."""

Scores = Mapping[str, int]
"""Score by node name; missing nodes have 0."""


def score_by_nodes(spec: PodSpec, nodes: Iterable[Node]) -> Scores:
    """Score nodes by preferred node affinity and by PreferNoSchedule taints."""
    node_list = list(nodes)
    preferred = decode_affinity(spec.affinity).node_affinity.preferred
    affinity_scores = {
        node.metadata.name: sum(term.weight for term in preferred if matches_node_selector_term(term.preference, node))
        for node in (node_list if preferred else ())
    }
    taint_scores = {
        node.metadata.name: -untolerated_soft_taints(spec.tolerations, node) for node in node_list if node.spec.taints
    }
    names = [node.metadata.name for node in node_list]
    return sum_scores(
        [_scaled(names, affinity_scores, NODE_AFFINITY_WEIGHT), _scaled(names, taint_scores, TAINT_WEIGHT)]
    )


def has_preferred_node_affinity(spec: PodSpec) -> bool:
    """Whether the pod has a preferred node affinity."""
    return bool(decode_affinity(spec.affinity).node_affinity.preferred)


def score_by_pods(member: ReplicaTypePods, topology: NodeTopology, placed_pods: PodIndex) -> Scores:
    """Score nodes by preferred pod (anti-)affinity and by soft topology spread constraints.

    Only pods that are already placed count: the scheduling policy places a gang's own replicas close to each other.
    """
    affinity_counts: Counter[str] = Counter()
    for term in member.constraints.preferred:
        affinity_counts.update(
            {name: term.weight * count for name, count in _counts(term, topology, placed_pods).items()}
        )
    spread_scores: Counter[str] = Counter()
    for spreading in member.constraints.soft_spread:
        spread_scores.update({name: -count for name, count in _counts(spreading.term, topology, placed_pods).items()})
    return sum_scores(
        [
            _scaled(topology.nodes, affinity_counts, POD_AFFINITY_WEIGHT),
            _scaled(topology.nodes, spread_scores, SPREAD_WEIGHT),
        ]
    )


def sum_scores(score_maps: Iterable[Scores]) -> Scores:
    total: Counter[str] = Counter()
    for scores in score_maps:
        total.update(scores)
    return {name: score for name, score in total.items() if score}


def _counts(term: PodTerm, topology: NodeTopology, placed_pods: PodIndex) -> Mapping[str, int]:
    """Return by node the number of selected pods in the node's domain."""
    domains = topology.domains(term.topology_key)
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
    return {name: weight * MAX_NODE_SCORE * (score - lowest) // (highest - lowest) for name, score in scores.items()}
