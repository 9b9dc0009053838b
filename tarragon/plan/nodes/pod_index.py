"""An index of running pods by label, for the evaluation of pod affinity and spread constraints.

It stores only references, and indexes a label name only once it is queried: without templates that have such
constraints, forty thousand pods cost nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from tarragon.kube.core import Pod
from tarragon.kube.meta import Key
from tarragon.kube.scheduling.affinity import decode_affinity
from tarragon.kube.scheduling.affinity_terms import LabelPair, Labels, PodTerm, anti_affinity_terms

K = TypeVar("K", bound=Hashable)


class LabelIndex(Generic[K]):
    """An index of keys by label. A label name is indexed when it is queried for the first time."""

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

    def with_any_label(self, choices: Iterable[LabelPair]) -> Iterable[K]:
        """Return the keys that have one of these labels; all keys if `choices` is empty."""
        pairs = list(choices)
        if not pairs:
            return list(self._labels)
        return set().union(*(self._pods_by_value(name).get(value, ()) for name, value in pairs))

    def _pods_by_value(self, name: str) -> Mapping[str, set[K]]:
        if name not in self._index:
            by_value: dict[str, set[K]] = {}
            for key, labels in self._labels.items():
                if name in labels:
                    by_value.setdefault(labels[name], set()).add(key)
            self._index[name] = by_value
        return self._index[name]


class PodIndex:
    """The bound pods that have not finished, indexed by label. Every change is reported by `put` or `drop`."""

    def __init__(self, pods: Iterable[Pod] = ()) -> None:
        self._pods: dict[Key, Pod] = {}
        self._by_label: LabelIndex[Key] = LabelIndex()
        self._anti_affinity: dict[LabelPair | None, dict[Key, list[PodTerm]]] = {}
        """Required anti-affinity terms by a label that the repelled pods have; None if they may have any labels."""
        for pod in pods:
            self.put(pod)

    def put(self, pod: Pod) -> None:
        key = pod.metadata.key
        if not is_placed(pod):
            self.drop(key)
            return
        self.drop(key)
        self._pods[key] = pod
        self._by_label.put(key, pod.metadata.labels)
        for term in required_anti_affinity(pod):
            for choice in term.required_labels or (None,):
                self._anti_affinity.setdefault(choice, {}).setdefault(key, []).append(term)

    def drop(self, key: Key) -> None:
        pod = self._pods.pop(key, None)
        self._by_label.drop(key)
        for term in () if pod is None else required_anti_affinity(pod):
            for choice in term.required_labels or (None,):
                self._anti_affinity.get(choice, {}).pop(key, None)
                if not self._anti_affinity.get(choice, True):
                    del self._anti_affinity[choice]

    def selected(self, terms: Iterable[PodTerm]) -> Iterator[Pod]:
        """Yield the pods that all of the terms select."""
        all_terms = list(terms)
        smallest_choice = min((term.required_labels for term in all_terms if term.required_labels), key=len, default=())
        for key in self._by_label.with_any_label(smallest_choice):
            pod = self._pods[key]
            if all(term.matches(key.namespace, pod.metadata.labels) for term in all_terms):
                yield pod

    def repelling(self, namespace: str, labels: Labels) -> Iterator[tuple[Pod, PodTerm]]:
        """Yield the pods whose required anti-affinity selects such a pod, with the term."""
        for choice in (None, *labels.items()):
            for key, terms in self._anti_affinity.get(choice, {}).items():
                yield from ((self._pods[key], term) for term in terms if term.matches(namespace, labels))


def is_placed(pod: Pod | None) -> bool:
    """Whether affinity terms of other pods can refer to the pod: it is bound and has not finished."""
    return pod is not None and bool(pod.spec.node_name) and not pod.is_finished


def required_anti_affinity(pod: Pod) -> tuple[PodTerm, ...]:
    """Return the terms of the pod's required anti-affinity."""
    if pod.spec.affinity is None:
        return ()
    return anti_affinity_terms(decode_affinity(pod.spec.affinity), pod.metadata.namespace, pod.metadata.labels)
