"""Which services select a pod, found without asking all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tarragon.kube.meta import Key

Term = tuple[str, str, str]
"""Namespace, label, value."""


def terms(namespace: str, labels: Mapping[str, str]) -> Iterator[Term]:
    return ((namespace, name, value) for name, value in labels.items())


class Selectors:
    """Each selector is filed under one of its terms: the one that the fewest others had when it came.

    For a job of a thousand replicas that is the index, for a thousand jobs of one replica the job's name: either way
    few have to be looked at for a pod.
    """

    def __init__(self) -> None:
        self._selectors: dict[Key, Mapping[str, str]] = {}
        self._filed: dict[Key, Term] = {}
        self._under: dict[Term, set[Key]] = {}
        self._having: dict[Term, int] = {}

    def set(self, key: Key, selector: Mapping[str, str]) -> None:
        """An empty selector selects nothing."""
        if self._selectors.get(key) == selector:
            return
        self.remove(key)
        if not selector:
            return
        mine = list(terms(key.namespace, selector))
        rarest = min(mine, key=lambda term: (self._having.get(term, 0), term))
        for term in mine:
            self._having[term] = self._having.get(term, 0) + 1
        self._selectors[key] = dict(selector)
        self._filed[key] = rarest
        self._under.setdefault(rarest, set()).add(key)

    def remove(self, key: Key) -> None:
        selector = self._selectors.pop(key, None)
        if selector is None:
            return
        for term in terms(key.namespace, selector):
            self._having[term] -= 1
            if not self._having[term]:
                del self._having[term]
        filed = self._filed.pop(key)
        self._under[filed].discard(key)
        if not self._under[filed]:
            del self._under[filed]

    def selecting(self, namespace: str, labels: Mapping[str, str]) -> list[Key]:
        """In no order."""
        candidates = (key for term in terms(namespace, labels) for key in self._under.get(term, ()))
        return [key for key in candidates if self._selectors[key].items() <= labels.items()]
