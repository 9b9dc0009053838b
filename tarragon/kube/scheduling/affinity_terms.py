"""Pod affinity terms and topology spread constraints, decoded into predicates over other pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tarragon.kube.core import PodSpec
from tarragon.kube.scheduling.affinity import (
    Affinity,
    LabelSelector,
    PodAffinityTerm,
    TopologySpreadConstraint,
    decode_affinity,
    decode_spread_constraints,
)
from tarragon.kube.selectors import Predicate

NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"
"""The label that every namespace has; the only namespace label that is evaluated."""

LabelPair = tuple[str, str]
Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTerm:
    """A term of a pod (anti-)affinity or of a spread constraint."""

    topology_key: str
    """The topology key: the node label whose values are the domains."""
    namespaces: frozenset[str] | None
    """The namespaces of the selected pods; None for all."""
    selects: Predicate
    required_labels: tuple[LabelPair, ...] = ()
    """Every selected pod has one of these labels, for the use of an index; empty if no such set is known."""
    weight: int = 0
    """The weight of a preference; negative for anti-affinity."""

    def matches(self, namespace: str, labels: Labels) -> bool:
        return (self.namespaces is None or namespace in self.namespaces) and self.selects(labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologySpread:
    """A topologySpreadConstraint, and the term that selects the pods that it counts."""

    term: PodTerm
    constraint: TopologySpreadConstraint


@dataclass(frozen=True, slots=True, kw_only=True)
class InterPodConstraints:
    """The inter-pod constraints of one pod template. They may select pods of the same template."""

    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    preferred: tuple[PodTerm, ...] = ()
    spread: tuple[TopologySpread, ...] = ()
    soft_spread: tuple[TopologySpread, ...] = field(default=())

    @property
    def terms(self) -> Iterator[PodTerm]:
        """All terms. Changes of pods that none of them selects can be ignored."""
        yield from (*self.affinity, *self.anti_affinity, *self.preferred)
        yield from (spreading.term for spreading in (*self.spread, *self.soft_spread))

    def __bool__(self) -> bool:
        return any(True for _ in self.terms)


def inter_pod_constraints(spec: PodSpec, namespace: str, labels: Labels) -> InterPodConstraints:
    """Decode the constraints of a pod of the namespace with the labels, by the rules of Kubernetes 1.37."""
    decoded = decode_affinity(spec.affinity)
    spreadings = [
        _spreading(each, namespace, labels) for each in decode_spread_constraints(spec.topology_spread_constraints)
    ]
    return InterPodConstraints(
        affinity=tuple(_term(each, namespace, labels) for each in decoded.pod_affinity.required),
        anti_affinity=anti_affinity_terms(decoded, namespace, labels),
        preferred=tuple(_preferred_terms(decoded, namespace, labels)),
        spread=tuple(each for each in spreadings if each.constraint.is_required),
        soft_spread=tuple(each for each in spreadings if not each.constraint.is_required),
    )


def anti_affinity_terms(decoded: Affinity, namespace: str, labels: Labels) -> tuple[PodTerm, ...]:
    """Return the terms of the required anti-affinity: they keep selected pods out of the pod's domains."""
    return tuple(_term(each, namespace, labels) for each in decoded.pod_anti_affinity.required)


def selects_namespaces_by_label(raw_affinity: object) -> bool:
    """Whether the required (anti-)affinity selects namespaces by labels, which are not read here."""
    decoded = decode_affinity(raw_affinity)
    required = (*decoded.pod_affinity.required, *decoded.pod_anti_affinity.required)
    return any(each.namespace_selector is not None and not _is_by_name(each.namespace_selector) for each in required)


def _preferred_terms(decoded: Affinity, namespace: str, labels: Labels) -> Iterator[PodTerm]:
    for sign, preferred in ((1, decoded.pod_affinity.preferred), (-1, decoded.pod_anti_affinity.preferred)):
        for each in preferred:
            yield _term(each.pod_affinity_term, namespace, labels, weight=sign * each.weight)


def _term(term: PodAffinityTerm, namespace: str, labels: Labels, weight: int = 0) -> PodTerm:
    selects, choices = _selection(term.label_selector, term.match_label_keys, labels)
    return PodTerm(
        topology_key=term.topology_key,
        namespaces=_namespaces(term, namespace),
        selects=_with_mismatch_keys(selects, term.mismatch_label_keys, labels),
        required_labels=choices,
        weight=weight,
    )


def _spreading(constraint: TopologySpreadConstraint, namespace: str, labels: Labels) -> TopologySpread:
    selects, choices = _selection(constraint.label_selector, constraint.match_label_keys, labels)
    if not choices and constraint.label_selector == LabelSelector():
        selects = _selects_nothing  # kube-scheduler counts no pods for an empty selector, though it selects all
    own_namespace = frozenset({namespace})
    term = PodTerm(
        topology_key=constraint.topology_key, namespaces=own_namespace, selects=selects, required_labels=choices
    )
    return TopologySpread(term=term, constraint=constraint)


def _selection(
    selector: LabelSelector | None, match_keys: Sequence[str], labels: Labels
) -> tuple[Predicate, tuple[LabelPair, ...]]:
    """Return a predicate and its label choices. `match_keys` (matchLabelKeys): labels that must equal the pod's own."""
    if selector is None:
        return _selects_nothing, ()
    selects = selector.predicate()
    pairs = tuple((key, labels[key]) for key in match_keys if key in labels)
    both = (lambda found: selects(found) and all(found.get(key) == value for key, value in pairs)) if pairs else selects
    choices = sorted([*selector.exact_label_sets, *([pair] for pair in pairs)], key=len)
    return both, tuple(choices[0]) if choices else ()


def _with_mismatch_keys(selects: Predicate, keys: Sequence[str], labels: Labels) -> Predicate:
    pairs = [(key, labels[key]) for key in keys if key in labels]
    if not pairs:
        return selects
    return lambda found: selects(found) and all(found.get(key) != value for key, value in pairs)


def _selects_nothing(_: Labels) -> bool:
    return False


def _namespaces(term: PodAffinityTerm, own_namespace: str) -> frozenset[str] | None:
    selector = term.namespace_selector
    if selector is None:
        return frozenset(term.namespaces or [own_namespace])
    named = _named_namespaces(selector)
    return None if named is None else frozenset([*term.namespaces, *named])


def _named_namespaces(selector: LabelSelector) -> frozenset[str] | None:
    """Return the namespaces that a selector names; None if it selects all or uses other labels than the name."""
    choices = selector.exact_label_sets
    if not choices or not _is_by_name(selector):
        return None
    return frozenset(set.intersection(*({value for _, value in choice} for choice in choices)))


def _is_by_name(selector: LabelSelector) -> bool:
    names = {*selector.match_labels, *(each.key for each in selector.match_expressions)}
    return names <= {NAMESPACE_NAME_LABEL} and all(each.operator == "In" for each in selector.match_expressions)
