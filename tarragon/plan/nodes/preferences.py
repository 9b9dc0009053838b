"""Which of the nodes that take a pod it likes better: what kube-scheduler makes scores of, in its weights."""

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
"""How much each kind of preference counts beside the others, since Kubernetes 1.26."""
FULL = 100
"""What a kind gives to the node that is liked best by it, and none to the one that is liked least."""

Scores = Mapping[str, int]
"""By node; missing is zero."""


def of_nodes(spec: PodSpec, nodes: Iterable[Node]) -> Scores:
    """Preferred node affinity, and taints of the effect PreferNoSchedule."""
    several = list(nodes)
    preferred = affinity(spec.affinity).node_affinity.preferred
    liked = {
        node.metadata.name: sum(term.weight for term in preferred if is_matched(term.preference, node))
        for node in (several if preferred else ())
    }
    disliked = {node.metadata.name: -unwelcome(spec, node) for node in several if node.spec.taints}
    names = [node.metadata.name for node in several]
    return summed([_scaled(names, liked, OF_NODES), _scaled(names, disliked, OF_TAINTS)])


def prefers_nodes(spec: PodSpec) -> bool:
    """Whether it says anything of nodes that it would like."""
    return bool(affinity(spec.affinity).node_affinity.preferred)


def of_pods(member: Member, sites: Sites, others: Neighbours) -> Scores:
    """Preferred affinity to pods that are there, and spreads that need not be kept.

    Only as they are now: how a gang's own replicas lie to each other is for the policy, which puts them near.
    """
    near: Counter[str] = Counter()
    for term in member.bonds.liked:
        near.update({name: term.weight * count for name, count in _counts(term, sites, others).items()})
    crowded: Counter[str] = Counter()
    for one in member.bonds.spread_liked:
        crowded.update({name: -count for name, count in _counts(one.term, sites, others).items()})
    return summed([_scaled(sites.nodes, near, OF_PODS), _scaled(sites.nodes, crowded, OF_SPREAD)])


def summed(several: Iterable[Scores]) -> Scores:
    total: Counter[str] = Counter()
    for scores in several:
        total.update(scores)
    return {name: score for name, score in total.items() if score}


def _counts(term: Term, sites: Sites, others: Neighbours) -> Mapping[str, int]:
    """By node: the pods in its domain."""
    domains = sites.domains(term.topology)
    found = Counter(domains[pod.spec.node_name] for pod in others.selected([term]) if pod.spec.node_name in domains)
    return {name: found[domain] for name, domain in domains.items() if domain in found} if found else {}


def _scaled(names: Iterable[str], raw: Mapping[str, int], weight: int) -> Scores:
    """The least liked of all nodes gets nothing, the best everything."""
    if not any(raw.values()):
        return {}
    every = {name: raw.get(name, 0) for name in names}
    least, best = min(every.values()), max(every.values())
    if least == best:
        return {}
    return {name: weight * FULL * (score - least) // (best - least) for name, score in every.items()}
