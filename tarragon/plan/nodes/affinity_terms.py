"""Which pods a rule between pods is about: the namespaces and the selector of a term, ready to be asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tarragon.kube.affinity import (
    Affinity,
    LabelSelector,
    PodAffinityTerm,
    SpreadConstraint,
    affinity,
    spread_constraints,
)
from tarragon.kube.core import PodSpec
from tarragon.kube.selectors import Predicate

NAME_OF_NAMESPACE = "kubernetes.io/metadata.name"
"""The one label that every namespace is known to have."""

Pair = tuple[str, str]
Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """`weight` is that of a preference; below zero it is for being apart."""

    topology: str
    """The label of nodes by which they are near to each other."""
    namespaces: frozenset[str] | None
    """None for all."""
    selects: Predicate
    choices: tuple[Pair, ...] = ()
    """Every pod that is selected has one of these labels; empty where nothing of the kind can be said."""
    weight: int = 0

    def matches(self, namespace: str, labels: Labels) -> bool:
        return (self.namespaces is None or namespace in self.namespaces) and self.selects(labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spreading:
    """A topologySpreadConstraint, and whom it counts."""

    term: Term
    constraint: SpreadConstraint


@dataclass(frozen=True, slots=True, kw_only=True)
class Bonds:
    """What the pods of one template ask of other pods. Its own kind may be among these."""

    near: tuple[Term, ...] = ()
    apart: tuple[Term, ...] = ()
    liked: tuple[Term, ...] = ()
    spread: tuple[Spreading, ...] = ()
    spread_liked: tuple[Spreading, ...] = field(default=())

    @property
    def terms(self) -> Iterator[Term]:
        """Of everything. Whatever happens to pods that none of them selects is of no interest."""
        yield from (*self.near, *self.apart, *self.liked)
        yield from (one.term for one in (*self.spread, *self.spread_liked))

    def __bool__(self) -> bool:
        return any(True for _ in self.terms)


def bonds(spec: PodSpec, namespace: str, labels: Labels) -> Bonds:
    """As Kubernetes 1.32 reads them, for a pod of that namespace with those labels."""
    read = affinity(spec.affinity)
    spreadings = [_spreading(one, namespace, labels) for one in spread_constraints(spec.topology_spread_constraints)]
    return Bonds(
        near=tuple(_term(one, namespace, labels) for one in read.pod_affinity.required),
        apart=repelled(read, namespace, labels),
        liked=tuple(_liked(read, namespace, labels)),
        spread=tuple(one for one in spreadings if one.constraint.is_required),
        spread_liked=tuple(one for one in spreadings if not one.constraint.is_required),
    )


def repelled(read: Affinity, namespace: str, labels: Labels) -> tuple[Term, ...]:
    """Whom a pod keeps off."""
    return tuple(_term(one, namespace, labels) for one in read.pod_anti_affinity.required)


def asks_unknown_namespaces(found: object) -> bool:
    """Whether what an affinity requires depends on labels of namespaces, which nobody here reads."""
    read = affinity(found)
    required = (*read.pod_affinity.required, *read.pod_anti_affinity.required)
    return any(one.namespace_selector is not None and not _is_by_name(one.namespace_selector) for one in required)


def _liked(read: Affinity, namespace: str, labels: Labels) -> Iterator[Term]:
    for sign, several in ((1, read.pod_affinity.preferred), (-1, read.pod_anti_affinity.preferred)):
        for one in several:
            yield _term(one.pod_affinity_term, namespace, labels, weight=sign * one.weight)


def _term(found: PodAffinityTerm, namespace: str, labels: Labels, weight: int = 0) -> Term:
    selects, choices = _selection(found.label_selector, found.match_label_keys, labels)
    return Term(
        topology=found.topology_key,
        namespaces=_namespaces(found, namespace),
        selects=_unlike(selects, found.mismatch_label_keys, labels),
        choices=choices,
        weight=weight,
    )


def _spreading(found: SpreadConstraint, namespace: str, labels: Labels) -> Spreading:
    selects, choices = _selection(found.label_selector, found.match_label_keys, labels)
    own = frozenset({namespace})
    term = Term(topology=found.topology_key, namespaces=own, selects=selects, choices=choices)
    return Spreading(term=term, constraint=found)


def _selection(
    selector: LabelSelector | None, alike: Sequence[str], labels: Labels
) -> tuple[Predicate, tuple[Pair, ...]]:
    """`alike`: labels in which the others have to be as these are (matchLabelKeys)."""
    if selector is None:
        return _nothing, ()
    selects = selector.predicate()
    pairs = tuple((key, labels[key]) for key in alike if key in labels)
    both = (lambda found: selects(found) and all(found.get(key) == value for key, value in pairs)) if pairs else selects
    choices = sorted([*selector.choices, *([pair] for pair in pairs)], key=len)
    return both, tuple(choices[0]) if choices else ()


def _unlike(selects: Predicate, keys: Sequence[str], labels: Labels) -> Predicate:
    pairs = [(key, labels[key]) for key in keys if key in labels]
    if not pairs:
        return selects
    return lambda found: selects(found) and all(found.get(key) != value for key, value in pairs)


def _nothing(_: Labels) -> bool:
    return False


def _namespaces(found: PodAffinityTerm, own: str) -> frozenset[str] | None:
    selector = found.namespace_selector
    if selector is None:
        return frozenset(found.namespaces or [own])
    named = _named(selector)
    return None if named is None else frozenset([*found.namespaces, *named])


def _named(selector: LabelSelector) -> frozenset[str] | None:
    """The namespaces that a selector asks for by name; None where it asks for all, or for more than names."""
    choices = selector.choices
    if not choices or not _is_by_name(selector):
        return None
    return frozenset(set.intersection(*({value for _, value in choice} for choice in choices)))


def _is_by_name(selector: LabelSelector) -> bool:
    names = {*selector.match_labels, *(one.key for one in selector.match_expressions)}
    return names <= {NAME_OF_NAMESPACE} and all(one.operator == "In" for one in selector.match_expressions)
