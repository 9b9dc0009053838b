"""Rules between pods, as numbers: nodes that other pods leave to a gang, and how its own pods have to lie."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tarragon.job.model import Replica, ReplicaType
from tarragon.kube.affinity import SpreadConstraint
from tarragon.kube.codec import encode
from tarragon.kube.core import Node, Pod, PodSpec
from tarragon.kube.meta import OwnerIdentity
from tarragon.plan.nodes.affinity_terms import Bonds, Labels, Spreading, Term, bonds
from tarragon.plan.nodes.neighbours import Neighbours
from tarragon.plan.nodes.predicates import is_tolerated, is_wanted, required_of_nodes
from tarragon.scheduling.api.snapshot import Spread

MOST_KNOWN = 4096
"""Spreads that are kept in mind: how many pods lie where is one thing now and another a moment later."""
NOBODY_NEAR = "no pod runs that it has to be near to"


class Sites:
    """Nodes, and the domains that their labels make of them: worked out once for all who ask."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.nodes: Mapping[str, Node] = {node.metadata.name: node for node in nodes}
        self._domains: dict[str, Mapping[str, str]] = {}
        self._everywhere: dict[str, Mapping[str, str]] = {}
        self._counted: dict[bytes, Mapping[str, str]] = {}
        self._spreads: dict[Hashable, Spread] = {}

    def domains(self, label: str) -> Mapping[str, str]:
        """The value by node, without those that have no such label."""
        if label not in self._domains:
            found = ((name, node.metadata.labels.get(label)) for name, node in self.nodes.items())
            self._domains[label] = {name: value for name, value in found if value is not None}
        return self._domains[label]

    def everywhere(self, label: str) -> Mapping[str, str]:
        """A node without the label is nobody's neighbour by it: it counts as a domain of its own."""
        if label not in self._everywhere:
            known = self.domains(label)
            alone = {name: f" {name}" for name in self.nodes if name not in known}
            self._everywhere[label] = {**known, **alone} if alone else known
        return self._everywhere[label]

    def counted(self, constraint: SpreadConstraint, labels: Sequence[str], spec: PodSpec) -> Mapping[str, str]:
        """The nodes that a spread counts: those that the pod wants, with all the labels by which it is spread."""
        wants = constraint.node_affinity_policy != "Ignore"
        tolerates = constraint.node_taints_policy == "Honor"
        asked = [spec.node_selector, required_of_nodes(spec)] if wants else None
        tolerations = spec.tolerations if tolerates else None
        key = encode([constraint.topology_key, labels, asked, tolerations])
        if key not in self._counted:
            self._counted[key] = {
                name: domain
                for name, domain in self.domains(constraint.topology_key).items()
                for node in [self.nodes[name]]
                if all(label in node.metadata.labels for label in labels)
                and (not wants or is_wanted(spec, node))
                and (not tolerates or is_tolerated(spec, node))
            }
        return self._counted[key]

    def one(self, spread: Spread) -> Spread:
        """The same object for all that say the same: gangs that are alike are decided about together."""
        if len(self._spreads) >= MOST_KNOWN:
            self._spreads.clear()
        already = frozenset(spread.already.items())
        rule = spread.counted, already, spread.skew, spread.most, spread.together
        # The domains are ours and as long-lived as we are.
        return self._spreads.setdefault((id(spread.domains), *rule), spread)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """The replicas of one type, as the pods they are."""

    type: ReplicaType
    namespace: str
    labels: Labels
    """Those that all of them have."""
    spec: PodSpec
    bonds: Bonds

    @classmethod
    def of(cls, kind: ReplicaType, namespace: str, labels: Labels, spec: PodSpec) -> Member:
        return cls(type=kind, namespace=namespace, labels=labels, spec=spec, bonds=bonds(spec, namespace, labels))

    def is_meant(self, terms: Iterable[Term]) -> bool:
        """By all of them."""
        return all(term.matches(self.namespace, self.labels) for term in terms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ties:
    """What rules between pods leave to the replicas of one type."""

    eligible: frozenset[str]
    spreads: tuple[Spread, ...] = ()
    crowded: str = ""
    """How much pods of others narrow it down, in words."""


class Gang:
    """The members of one job. `owner` tells their own pods, which a policy counts by itself, from all others."""

    def __init__(self, members: Sequence[Member], owner: OwnerIdentity) -> None:
        self.members = members
        self._owner = owner

    def ties(self, eligible: Mapping[ReplicaType, frozenset[str]], sites: Sites, others: Neighbours) -> _TiesByType:
        """`eligible`: by what their templates ask of nodes alone."""
        shared = list(self._shared(sites, others))
        found = {}
        for member in self.members:
            kept_off = self._kept_off(member, sites, others)
            # The same set for thousands of jobs, as long as nobody is in anybody's way.
            allowed = eligible[member.type] - kept_off if kept_off else eligible[member.type]
            near = self._near(member, sites, others)
            left = allowed if near is None else allowed & near
            spreads = tuple(spread for kind, spread in shared if kind is member.type)
            is_narrowed = len(left) < len(eligible[member.type]) or any(spread.already for spread in spreads)
            found[member.type] = Ties(
                eligible=left,
                spreads=spreads,
                crowded=_words(left, eligible[member.type], near) if is_narrowed else "",
            )
        return found

    def _kept_off(self, member: Member, sites: Sites, others: Neighbours) -> frozenset[str]:
        """Nodes in domains of pods that it keeps off, or that keep it off."""
        taken = [(pod, term) for term in member.bonds.apart for pod in others.selected([term])]
        taken += others.repelling(member.namespace, member.labels)
        lost = {
            (term.topology, domain)
            for pod, term in taken
            if not self._is_own(pod)
            if (domain := sites.domains(term.topology).get(pod.spec.node_name)) is not None
        }
        labels = {label for label, _ in lost}
        return frozenset(
            name for label in labels for name, domain in sites.domains(label).items() if (label, domain) in lost
        )

    def _near(self, member: Member, sites: Sites, others: Neighbours) -> frozenset[str] | None:
        """Nodes in domains of pods that it has to be near; None where it need not be near anybody."""
        terms = member.bonds.near
        if not terms:
            return None
        labelled = [sites.domains(term.topology) for term in terms]
        found = self._housed(terms, sites, others)
        if any(not self._is_own(pod) for pod in found):
            homes = [{domains.get(pod.spec.node_name) for pod in found} - {None} for domains in labelled]
            return _in_all(labelled, homes)
        if not any(other.is_meant(terms) for other in self.members):
            return frozenset()
        return _in_all(labelled, None)

    def _housed(self, terms: Sequence[Term], sites: Sites, others: Neighbours) -> list[Pod]:
        """Pods that all the terms select. One that is in no domain by any of them is as if it were not there."""
        labelled = [sites.domains(term.topology) for term in terms]
        return [pod for pod in others.selected(terms) if any(pod.spec.node_name in domains for domains in labelled)]

    def _shared(self, sites: Sites, others: Neighbours) -> Iterator[tuple[ReplicaType, Spread]]:
        for member in self.members:
            yield from self._together(member, sites, others)
            for term in member.bonds.apart:
                yield from self._apart(member, term, sites)
            for one in member.bonds.spread:
                yield member.type, self._evenly(member, one, sites, others)

    def _together(self, member: Member, sites: Sites, others: Neighbours) -> Iterator[tuple[ReplicaType, Spread]]:
        """Who has to be near its own gang, and finds nobody else, is put into one domain with all whom it means."""
        terms = member.bonds.near
        meant = frozenset(other.type for other in self.members if other.is_meant(terms))
        if not terms or not meant or not all(map(self._is_own, self._housed(terms, sites, others))):
            return
        for term in terms:
            spread = Spread(domains=sites.domains(term.topology), counted=meant | {member.type}, together=True)
            spread = sites.one(spread)
            yield from ((kind, spread) for kind in spread.counted)

    def _apart(self, member: Member, term: Term, sites: Sites) -> Iterator[tuple[ReplicaType, Spread]]:
        """The other side of it counts as much: whom it keeps off keeps it off."""
        meant = frozenset(other.type for other in self.members if other.is_meant([term]))
        if not meant:
            return
        domains = sites.everywhere(term.topology)
        yield member.type, sites.one(Spread(domains=domains, counted=meant, most=int(member.type in meant)))
        for other in meant - {member.type}:
            yield other, sites.one(Spread(domains=domains, counted=frozenset({member.type}), most=0))

    def _evenly(self, member: Member, one: Spreading, sites: Sites, others: Neighbours) -> Spread:
        labels = [other.constraint.topology_key for other in member.bonds.spread]
        domains = sites.counted(one.constraint, labels, member.spec)
        counts = self._counts(one.term, domains, others)
        few = one.constraint.min_domains is not None and len(set(domains.values())) < one.constraint.min_domains
        skew = one.constraint.max_skew
        spread = Spread(
            domains=domains,
            counted=frozenset(other.type for other in self.members if other.is_meant([one.term])),
            already=counts,
            # With fewer domains than it wants, it is as if one more were there, and empty.
            skew=None if few else skew,
            most=skew if few else None,
        )
        return sites.one(spread)

    def _counts(self, term: Term, domains: Mapping[str, str], others: Neighbours) -> Mapping[str, int]:
        """Pods that are ending don't count, here and nowhere else."""
        return Counter(
            domains[pod.spec.node_name]
            for pod in others.selected([term])
            if pod.spec.node_name in domains and not self._is_own(pod) and not pod.metadata.is_ending
        )

    def _is_own(self, pod: Pod) -> bool:
        return pod.metadata.controlled_by == self._owner


_TiesByType = dict[ReplicaType, Ties]


def keeps(spread: Spread, places: Mapping[Replica, str], added: Collection[Replica]) -> bool:
    """Whether replicas that are added may be where they are, once all have their places."""
    counts = Counter(spread.already)
    counts.update(
        spread.domains[node]
        for replica, node in places.items()
        if replica.type in spread.counted and node in spread.domains
    )
    homes = [spread.domains.get(places[replica]) for replica in added]
    least = min((counts[domain] for domain in spread.domains.values()), default=0)
    most = min(limit for limit in (spread.most, _more(spread.skew, least), sys.maxsize) if limit is not None)
    return all(home is not None and counts[home] <= most for home in homes)


def _more(skew: int | None, least: int) -> int | None:
    return None if skew is None else least + skew


def _words(left: frozenset[str], before: frozenset[str], near: frozenset[str] | None) -> str:
    if near is not None and not near:
        return NOBODY_NEAR
    return f"its rules about other pods, or theirs about it, leave it {len(left)} of {len(before)} nodes"


def _in_all(labelled: Sequence[Mapping[str, str]], homes: Sequence[set[str | None]] | None) -> frozenset[str]:
    """Nodes that have all the labels, and, where there are homes, are in one of them by each."""
    names = set(labelled[0]).intersection(*labelled[1:])
    if homes is None:
        return frozenset(names)
    pairs = list(zip(labelled, homes, strict=True))
    return frozenset(name for name in names if all(domains[name] in home for domains, home in pairs))
