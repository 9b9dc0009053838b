"""The pods that are on nodes, found by their labels: what rules between pods are asked of.

Nothing is kept but references, and nothing is indexed but the labels that somebody has asked for: where no template has
such rules, forty thousand pods cost nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from tarragon.kube.affinity import affinity
from tarragon.kube.core import Pod
from tarragon.kube.meta import Key
from tarragon.plan.nodes.affinity_terms import Labels, Pair, Term, repelled

K = TypeVar("K", bound=Hashable)


class ByLabel(Generic[K]):
    """Which keys have a label. A name of a label is indexed when it is asked for the first time."""

    def __init__(self) -> None:
        self._labels: dict[K, Labels] = {}
        self._index: dict[str, dict[str, set[K]]] = {}

    def put(self, key: K, labels: Labels) -> None:
        self.drop(key)
        self._labels[key] = labels
        for name, by_value in self._index.items():
            if name in labels:
                by_value.setdefault(labels[name], set()).add(key)

    def drop(self, key: K) -> None:
        labels = self._labels.pop(key, {})
        for name, by_value in self._index.items():
            if name in labels:
                by_value[labels[name]].discard(key)
                if not by_value[labels[name]]:
                    del by_value[labels[name]]

    def having(self, choices: Iterable[Pair]) -> Iterable[K]:
        """One of these labels; all keys where there is no choice."""
        pairs = list(choices)
        if not pairs:
            return list(self._labels)
        return set().union(*(self._of(name).get(value, ()) for name, value in pairs))

    def _of(self, name: str) -> Mapping[str, set[K]]:
        if name not in self._index:
            by_value: dict[str, set[K]] = {}
            for key, labels in self._labels.items():
                if name in labels:
                    by_value.setdefault(labels[name], set()).add(key)
            self._index[name] = by_value
        return self._index[name]


class Neighbours:
    """To be told of every change of a pod. One that has run to its end is nobody's neighbour."""

    def __init__(self, pods: Iterable[Pod] = ()) -> None:
        self._pods: dict[Key, Pod] = {}
        self._by_label: ByLabel[Key] = ByLabel()
        self._repelling: dict[Pair | None, dict[Key, list[Term]]] = {}
        """By the labels of which whoever is kept off has one; None for whom it may be anybody."""
        for pod in pods:
            self.put(pod)

    def put(self, pod: Pod) -> None:
        key = pod.metadata.key
        if not is_neighbour(pod):
            self.drop(key)
            return
        self.drop(key)
        self._pods[key] = pod
        self._by_label.put(key, pod.metadata.labels)
        for term in keeps_off(pod):
            for choice in term.choices or (None,):
                self._repelling.setdefault(choice, {}).setdefault(key, []).append(term)

    def drop(self, key: Key) -> None:
        pod = self._pods.pop(key, None)
        self._by_label.drop(key)
        for term in () if pod is None else keeps_off(pod):
            for choice in term.choices or (None,):
                self._repelling.get(choice, {}).pop(key, None)
                if not self._repelling.get(choice, True):
                    del self._repelling[choice]

    def selected(self, terms: Iterable[Term]) -> Iterator[Pod]:
        """Those that all of the terms select."""
        several = list(terms)
        narrowest = min((one.choices for one in several if one.choices), key=len, default=())
        for key in self._by_label.having(narrowest):
            pod = self._pods[key]
            if all(one.matches(key.namespace, pod.metadata.labels) for one in several):
                yield pod

    def repelling(self, namespace: str, labels: Labels) -> Iterator[tuple[Pod, Term]]:
        """Those that keep such a pod off, and why."""
        for choice in (None, *labels.items()):
            for key, terms in self._repelling.get(choice, {}).items():
                yield from ((self._pods[key], term) for term in terms if term.matches(namespace, labels))


def is_neighbour(pod: Pod | None) -> bool:
    """Whether others may want to be near it, or apart from it."""
    return pod is not None and bool(pod.spec.node_name) and not pod.is_finished


def keeps_off(pod: Pod) -> tuple[Term, ...]:
    """Whom its required anti-affinity is about."""
    if pod.spec.affinity is None:
        return ()
    return repelled(affinity(pod.spec.affinity), pod.metadata.namespace, pod.metadata.labels)
