"""Evaluates inter-pod constraints: which nodes other pods leave to a gang, and how its own pods must spread."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tarragon.job.model import Replica, ReplicaType
from tarragon.kube.codec import encode
from tarragon.kube.core import Node, Pod, PodSpec
from tarragon.kube.meta import OwnerIdentity
from tarragon.kube.scheduling.affinity import TopologySpreadConstraint
from tarragon.kube.scheduling.affinity_terms import (
    InterPodConstraints,
    Labels,
    PodTerm,
    TopologySpread,
    inter_pod_constraints,
)
from tarragon.kube.scheduling.node_affinity import matches_node_affinity, required_node_affinity
from tarragon.kube.scheduling.taints import untolerated_taint
from tarragon.plan.nodes.pod_index import PodIndex
from tarragon.scheduling.api.snapshot import DomainMap, TopologyConstraint

MAX_CACHED_SPREADS = 4096
"""The size of the cache of spreads. Their pod counts change all the time, so that old ones are useless."""
NO_MATCHING_POD = "no running pod matches its required pod affinity"


class NodeTopology:
    """The nodes and their topology domains by label. Results are cached and shared by all jobs."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.nodes: Mapping[str, Node] = {node.metadata.name: node for node in nodes}
        self._domains: dict[str, DomainMap] = {}
        self._everywhere: dict[str, DomainMap] = {}
        self._counted: dict[bytes, DomainMap] = {}
        self._spreads: dict[Hashable, TopologyConstraint] = {}

    def domains(self, label: str) -> DomainMap:
        """Return the domain (the label's value) by node, without nodes that lack the label."""
        if label not in self._domains:
            values = ((name, node.metadata.labels.get(label)) for name, node in self.nodes.items())
            self._domains[label] = DomainMap({name: value for name, value in values if value is not None})
        return self._domains[label]

    def domains_of_all_nodes(self, label: str) -> DomainMap:
        """Return the domain by node, where each node without the label is a domain of its own."""
        if label not in self._everywhere:
            labelled = self.domains(label)
            unlabelled = {name: f" {name}" for name in self.nodes if name not in labelled}
            self._everywhere[label] = DomainMap({**labelled, **unlabelled}) if unlabelled else labelled
        return self._everywhere[label]

    def counted_domains(self, constraint: TopologySpreadConstraint, labels: Sequence[str], spec: PodSpec) -> DomainMap:
        """Return the domain by node for the nodes that a spread constraint counts.

        They have the topology keys of all constraints of the pod, and match its node affinity and taints as the
        constraint's policies say.
        """
        honors_affinity = constraint.node_affinity_policy != "Ignore"
        honors_taints = constraint.node_taints_policy == "Honor"
        affinity_key = [spec.node_selector, required_node_affinity(spec)] if honors_affinity else None
        tolerations = spec.tolerations if honors_taints else None
        key = encode([constraint.topology_key, labels, affinity_key, tolerations])
        if key not in self._counted:
            self._counted[key] = DomainMap(
                {
                    name: domain
                    for name, domain in self.domains(constraint.topology_key).items()
                    for node in [self.nodes[name]]
                    if all(label in node.metadata.labels for label in labels)
                    and (not honors_affinity or matches_node_affinity(spec, node))
                    and (not honors_taints or untolerated_taint(spec.tolerations, node) is None)
                }
            )
        return self._counted[key]

    def interned(self, spread: TopologyConstraint) -> TopologyConstraint:
        """Return one shared object for equal spreads, so that the scheduler can treat similar gangs together."""
        if len(self._spreads) >= MAX_CACHED_SPREADS:
            self._spreads.clear()
        already = frozenset(spread.existing_pods.items())
        rule = spread.counted_types, already, spread.max_skew, spread.max_per_domain, spread.in_one_domain
        return self._spreads.setdefault((spread.domain_of, *rule), spread)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaTypePods:
    """The pods of one replica type, as far as inter-pod constraints concern them."""

    type: ReplicaType
    namespace: str
    labels: Labels
    """The labels that all of these pods have."""
    spec: PodSpec
    constraints: InterPodConstraints

    @classmethod
    def of(cls, kind: ReplicaType, namespace: str, labels: Labels, spec: PodSpec) -> ReplicaTypePods:
        return cls(
            type=kind,
            namespace=namespace,
            labels=labels,
            spec=spec,
            constraints=inter_pod_constraints(spec, namespace, labels),
        )

    def is_selected_by(self, terms: Iterable[PodTerm]) -> bool:
        """Whether all of the terms select these pods."""
        return all(term.matches(self.namespace, self.labels) for term in terms)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeasibleNodes:
    """The result for one replica type: the nodes that inter-pod constraints allow, and how its replicas must spread."""

    eligible: frozenset[str]
    spreads: tuple[TopologyConstraint, ...] = ()
    narrowing_message: str = ""
    """A message about how much other pods reduce the choice of nodes; empty if they don't."""


class GangConstraints:
    """The replica types of one job. Pods that `owner` controls are ignored: the scheduling policy counts those."""

    def __init__(self, members: Sequence[ReplicaTypePods], owner: OwnerIdentity) -> None:
        self.members = members
        self._owner = owner

    def feasible_nodes(
        self, eligible: Mapping[ReplicaType, frozenset[str]], topology: NodeTopology, placed_pods: PodIndex
    ) -> _TiesByType:
        """Apply the inter-pod constraints to `eligible`, the nodes that match the templates' node constraints."""
        shared = list(self._gang_spreads(topology, placed_pods))
        result = {}
        for member in self.members:
            excluded = self._excluded_nodes(member, topology, placed_pods)
            # Without exclusions this is the same set object for thousands of jobs.
            permitted = eligible[member.type] - excluded if excluded else eligible[member.type]
            near_nodes = self._required_nodes(member, topology, placed_pods)
            feasible = permitted if near_nodes is None else permitted & near_nodes
            spreads = tuple(spread for kind, spread in shared if kind == member.type)
            is_narrowed = len(feasible) < len(eligible[member.type]) or any(spread.existing_pods for spread in spreads)
            result[member.type] = FeasibleNodes(
                eligible=feasible,
                spreads=spreads,
                narrowing_message=_narrowing_message(feasible, eligible[member.type], near_nodes)
                if is_narrowed
                else "",
            )
        return result

    def _excluded_nodes(self, member: ReplicaTypePods, topology: NodeTopology, placed_pods: PodIndex) -> frozenset[str]:
        """Return nodes in domains that anti-affinity excludes: the member's own, or that of placed pods against it."""
        repelling = [(pod, term) for term in member.constraints.anti_affinity for pod in placed_pods.selected([term])]
        repelling += placed_pods.repelling(member.namespace, member.labels)
        excluded_domains = {
            (term.topology_key, domain)
            for pod, term in repelling
            if not self._is_own(pod)
            if (domain := topology.domains(term.topology_key).get(pod.spec.node_name)) is not None
        }
        labels = {label for label, _ in excluded_domains}
        return frozenset(
            name
            for label in labels
            for name, domain in topology.domains(label).items()
            if (label, domain) in excluded_domains
        )

    def _required_nodes(
        self, member: ReplicaTypePods, topology: NodeTopology, placed_pods: PodIndex
    ) -> frozenset[str] | None:
        """Return nodes in domains of pods that the required pod affinity selects; None without such an affinity."""
        terms = member.constraints.affinity
        if not terms:
            return None
        labelled = [topology.domains(term.topology_key) for term in terms]
        selected_pods = self._selected_in_domains(terms, topology, placed_pods)
        if any(not self._is_own(pod) for pod in selected_pods):
            occupied = [{domains.get(pod.spec.node_name) for pod in selected_pods} - {None} for domains in labelled]
            return _nodes_with_labels(labelled, occupied)
        if not any(other.is_selected_by(terms) for other in self.members):
            return frozenset()
        return _nodes_with_labels(labelled, None)

    def _selected_in_domains(
        self, terms: Sequence[PodTerm], topology: NodeTopology, placed_pods: PodIndex
    ) -> list[Pod]:
        """Return the pods that all terms select, without those whose node is in no domain of any term."""
        labelled = [topology.domains(term.topology_key) for term in terms]
        return [
            pod for pod in placed_pods.selected(terms) if any(pod.spec.node_name in domains for domains in labelled)
        ]

    def _gang_spreads(
        self, topology: NodeTopology, placed_pods: PodIndex
    ) -> Iterator[tuple[ReplicaType, TopologyConstraint]]:
        for member in self.members:
            yield from self._affinity_spreads(member, topology, placed_pods)
            for term in member.constraints.anti_affinity:
                yield from self._anti_affinity_spreads(member, term, topology)
            for spreading in member.constraints.spread:
                yield member.type, self._topology_spread(member, spreading, topology, placed_pods)

    def _affinity_spreads(
        self, member: ReplicaTypePods, topology: NodeTopology, placed_pods: PodIndex
    ) -> Iterator[tuple[ReplicaType, TopologyConstraint]]:
        """Yield spreads that put a gang into one domain, if its pod affinity selects only pods of the gang itself."""
        terms = member.constraints.affinity
        selected_types = frozenset(other.type for other in self.members if other.is_selected_by(terms))
        if (
            not terms
            or not selected_types
            or not all(map(self._is_own, self._selected_in_domains(terms, topology, placed_pods)))
        ):
            return
        for term in terms:
            spread = TopologyConstraint(
                domain_of=topology.domains(term.topology_key),
                counted_types=selected_types | {member.type},
                in_one_domain=True,
            )
            spread = topology.interned(spread)
            yield from ((kind, spread) for kind in spread.counted_types)

    def _anti_affinity_spreads(
        self, member: ReplicaTypePods, term: PodTerm, topology: NodeTopology
    ) -> Iterator[tuple[ReplicaType, TopologyConstraint]]:
        """Yield spreads for anti-affinity within the gang. It is symmetric: it limits the selected types, too."""
        selected_types = frozenset(other.type for other in self.members if other.is_selected_by([term]))
        if not selected_types:
            return
        domains = topology.domains_of_all_nodes(term.topology_key)
        yield (
            member.type,
            topology.interned(
                TopologyConstraint(
                    domain_of=domains, counted_types=selected_types, max_per_domain=int(member.type in selected_types)
                )
            ),
        )
        for other in selected_types - {member.type}:
            yield (
                other,
                topology.interned(
                    TopologyConstraint(domain_of=domains, counted_types=frozenset({member.type}), max_per_domain=0)
                ),
            )

    def _topology_spread(
        self, member: ReplicaTypePods, spreading: TopologySpread, topology: NodeTopology, placed_pods: PodIndex
    ) -> TopologyConstraint:
        labels = [other.constraint.topology_key for other in member.constraints.spread]
        domains = topology.counted_domains(spreading.constraint, labels, member.spec)
        counts = self._counts(spreading.term, domains, placed_pods)
        has_too_few_domains = (
            spreading.constraint.min_domains is not None
            and len(set(domains.values())) < spreading.constraint.min_domains
        )
        skew = spreading.constraint.max_skew
        spread = TopologyConstraint(
            domain_of=domains,
            counted_types=frozenset(other.type for other in self.members if other.is_selected_by([spreading.term])),
            existing_pods=counts,
            # With fewer domains than minDomains, the global minimum is 0.
            max_skew=None if has_too_few_domains else skew,
            max_per_domain=skew if has_too_few_domains else None,
        )
        return topology.interned(spread)

    def _counts(self, term: PodTerm, domains: Mapping[str, str], placed_pods: PodIndex) -> Mapping[str, int]:
        """Count placed pods by domain. Only spread constraints ignore pods that are being deleted."""
        return Counter(
            domains[pod.spec.node_name]
            for pod in placed_pods.selected([term])
            if pod.spec.node_name in domains and not self._is_own(pod) and not pod.metadata.is_being_deleted
        )

    def _is_own(self, pod: Pod) -> bool:
        return pod.metadata.controller_identity == self._owner


_TiesByType = dict[ReplicaType, FeasibleNodes]


def satisfies_spread(
    spread: TopologyConstraint, assignments: Mapping[Replica, str], added: Collection[Replica]
) -> bool:
    """Whether the added replicas satisfy the spread, given the assignments of all replicas."""
    counts = Counter(spread.existing_pods)
    counts.update(
        spread.domain_of[node]
        for replica, node in assignments.items()
        if replica.type in spread.counted_types and node in spread.domain_of
    )
    occupied = [spread.domain_of.get(assignments[replica]) for replica in added]
    least = min((counts[domain] for domain in spread.domain_of.values()), default=0)
    limit_count = min(
        limit
        for limit in (spread.max_per_domain, _skew_limit(spread.max_skew, least), sys.maxsize)
        if limit is not None
    )
    return all(domain is not None and counts[domain] <= limit_count for domain in occupied)


def _skew_limit(skew: int | None, least: int) -> int | None:
    return None if skew is None else least + skew


def _narrowing_message(feasible: frozenset[str], before: frozenset[str], near_nodes: frozenset[str] | None) -> str:
    if near_nodes is not None and not near_nodes:
        return NO_MATCHING_POD
    return f"affinity and spread rules between pods leave {len(feasible)} of {len(before)} nodes"


def _nodes_with_labels(
    labelled: Sequence[Mapping[str, str]], occupied: Sequence[set[str | None]] | None
) -> frozenset[str]:
    """Return nodes that have all the labels and, if `occupied` is given, are in an occupied domain of each."""
    names = set(labelled[0]).intersection(*labelled[1:])
    if occupied is None:
        return frozenset(names)
    pairs = list(zip(labelled, occupied, strict=True))
    return frozenset(name for name in names if all(domains[name] in domain for domains, domain in pairs))
