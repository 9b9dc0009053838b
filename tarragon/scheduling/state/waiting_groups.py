"""The waiting gangs in groups of equal ones: of ten thousand that wait, most are like others."""

from __future__ import annotations

import datetime as dt
from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable, Sequence

from tarragon.scheduling.state.candidates import Candidate, seniority


class WaitingGroups:
    """Groups of candidates of which none has an advantage over another but that of being older. They are kept from
    cycle to cycle, as few gangs come and go.
    """

    def __init__(self, candidates: Iterable[Candidate], *, by_queue: bool) -> None:
        self.by_queue = by_queue
        """Whether the gangs of a group are of one queue (namespace), whose share or quota counts."""
        self._by_key: dict[Hashable, list[Candidate]] = {}
        self._in_order: list[list[Candidate]] = []
        self.update((), candidates)

    def in_order(self) -> Sequence[Sequence[Candidate]]:
        """Return the groups in the order of their oldest gangs, which are their first ones. Must not be modified."""
        return self._in_order

    def update(self, removed: Iterable[Candidate], added: Iterable[Candidate]) -> None:
        """Remove candidates, and add others."""
        for candidate in removed:
            key = self._key(candidate)
            group = self._by_key[key]
            del group[bisect_left(group, seniority(candidate), key=seniority)]
            if not group:
                del self._by_key[key]
        for candidate in added:
            key = self._key(candidate)
            if key not in self._by_key:
                self._by_key[key] = []
                self._in_order.append(self._by_key[key])
            insort(self._by_key[key], candidate, key=seniority)
        self._in_order = sorted(filter(None, self._in_order), key=_seniority_of_first)

    def _key(self, candidate: Candidate) -> Hashable:
        return candidate.group, candidate.gang.queue if self.by_queue else ""


def _seniority_of_first(group: Sequence[Candidate]) -> tuple[int, dt.datetime | None, str]:
    return seniority(group[0])
