"""An index of Service selectors, which finds the Services of a pod without comparing all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tarragon.kube.meta import Key

LabelTerm = tuple[str, str, str]
"""A namespace, a label name and a label value."""


def label_terms(namespace: str, labels: Mapping[str, str]) -> Iterator[LabelTerm]:
    return ((namespace, name, value) for name, value in labels.items())


class SelectorIndex:
    """Indexes each selector by one of its terms: the term that the fewest selectors had when it was added.

    That is the replica index in a job of a thousand replicas, and the job name in a thousand jobs of one replica, so
    few selectors are compared for a pod.
    """

    def __init__(self) -> None:
        self._selectors: dict[Key, Mapping[str, str]] = {}
        self._index_term: dict[Key, LabelTerm] = {}
        self._keys_by_term: dict[LabelTerm, set[Key]] = {}
        self._term_counts: dict[LabelTerm, int] = {}

    def set(self, key: Key, selector: Mapping[str, str]) -> None:
        """Add or replace the selector of a Service. An empty selector selects nothing."""
        if self._selectors.get(key) == selector:
            return
        self.remove(key)
        if not selector:
            return
        own_terms = list(label_terms(key.namespace, selector))
        rarest = min(own_terms, key=lambda term: (self._term_counts.get(term, 0), term))
        for term in own_terms:
            self._term_counts[term] = self._term_counts.get(term, 0) + 1
        self._selectors[key] = dict(selector)
        self._index_term[key] = rarest
        self._keys_by_term.setdefault(rarest, set()).add(key)

    def remove(self, key: Key) -> None:
        selector = self._selectors.pop(key, None)
        if selector is None:
            return
        for term in label_terms(key.namespace, selector):
            self._term_counts[term] -= 1
            if not self._term_counts[term]:
                del self._term_counts[term]
        index_term = self._index_term.pop(key)
        self._keys_by_term[index_term].discard(key)
        if not self._keys_by_term[index_term]:
            del self._keys_by_term[index_term]

    def services_selecting(self, namespace: str, labels: Mapping[str, str]) -> list[Key]:
        """The Services that select a pod with these labels, in no particular order."""
        candidates = (key for term in label_terms(namespace, labels) for key in self._keys_by_term.get(term, ()))
        return [key for key in candidates if self._selectors[key].items() <= labels.items()]
