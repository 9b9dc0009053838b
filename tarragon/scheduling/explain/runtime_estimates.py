"""Estimates how much longer a gang will run, from the run times of others."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Seconds = npt.NDArray[np.float64]

MIN_SIMILAR = 5
"""This many finished gangs of one kind that ran longer than the gang's age are a better basis than all
gangs together.
"""
MAX_RECENT = 300
"""Older run times are less relevant: of each kind only this many of the latest finished gangs count."""
_ALL = ()
"""The kind that all gangs share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTime:
    """The run time of a gang, until its end or until now. One that still runs is a lower bound (a censored
    observation).
    """

    seconds: float
    is_finished: bool
    kinds: Sequence[Hashable] = ()
    """The gang's kinds, the closest likeness first. Gangs of a common kind have similar run times."""


class RunTimeEstimates:
    """The run times seen in one cluster. The end of a gang that has run longer than all of them is unknown."""

    def __init__(self, lives: Iterable[RunTime]) -> None:
        """Expects the gangs in the order in which they ended."""
        self._lives = list(lives)
        self.finished = sum(life.is_finished for life in self._lives)
        by_kind: dict[Hashable, list[RunTime]] = {_ALL: self._lives}
        for life in self._lives:
            for kind in life.kinds:
                by_kind.setdefault(kind, []).append(life)
        self._by_kind: Mapping[Hashable, Sequence[RunTime]] = by_kind
        self._tables: dict[Hashable, tuple[Seconds, Seconds]] = {}

    def remaining(self, kinds: Sequence[Hashable], age: float, shares: Seconds) -> Seconds:
        """Return the seconds from now after which each share of such gangs has ended; infinite where unknown."""
        ends, at_risk = self._of_kind(kinds, age)
        first = np.searchsorted(ends, age, side="right")
        # The Kaplan-Meier estimator. The gang in question is one more at risk at each end.
        alive = np.cumprod(1 - 1 / (at_risk[first:] + 1))
        possible_ends = np.concatenate([ends[first:], [np.inf]])
        # `alive` is decreasing: find the first end at which no more than 1 - share are left.
        return np.asarray(possible_ends[np.searchsorted(-alive, shares - 1 - 1e-12)] - age)

    def _of_kind(self, kinds: Sequence[Hashable], age: float) -> tuple[Seconds, Seconds]:
        for kind in kinds:
            if kind in self._by_kind:
                ends, at_risk = self._table(kind)
                if len(ends) - np.searchsorted(ends, age, side="right") >= MIN_SIMILAR:
                    return ends, at_risk
        return self._table(_ALL)

    def _table(self, kind: Hashable) -> tuple[Seconds, Seconds]:
        """Return the sorted run times of finished gangs, and the number of gangs still running just before each of
        these ends.
        """
        if kind not in self._tables:
            lives = self._by_kind[kind]
            finished = [life.seconds for life in lives if life.is_finished]
            ends = np.sort(np.array(finished[-MAX_RECENT:], np.float64))
            unfinished = np.sort(np.array([life.seconds for life in lives if not life.is_finished], np.float64))
            finishing_later = len(ends) - np.arange(len(ends))
            still_running = len(unfinished) - np.searchsorted(unfinished, ends, side="left")
            self._tables[kind] = ends, (finishing_later + still_running).astype(np.float64)
        return self._tables[kind]
