"""How much longer a gang will run, judged by how long others have."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Seconds = npt.NDArray[np.float64]

ALIKE = 5
"""So many that have ended later than a gang's age tell more of it than all others do."""
LATEST = 300
"""What was long ago tells less: of each kind only so many that have ended are looked at."""
_ALL = ()
"""What every gang has in common with every other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """How long a gang has run: to its end, or until now. One that still runs says that gangs last at least so long."""

    seconds: float
    is_over: bool
    kinds: Sequence[Hashable] = ()
    """What others may share with it, the closest likeness first."""


class Lengths:
    """Of one cluster. What lasts longer than anything that was seen here has no known end."""

    def __init__(self, lives: Iterable[Life]) -> None:
        """In the order in which they ended."""
        self._lives = list(lives)
        self.finished = sum(life.is_over for life in self._lives)
        sorts: dict[Hashable, list[Life]] = {_ALL: self._lives}
        for life in self._lives:
            for kind in life.kinds:
                sorts.setdefault(kind, []).append(life)
        self._sorts: Mapping[Hashable, Sequence[Life]] = sorts
        self._tables: dict[Hashable, tuple[Seconds, Seconds]] = {}

    def remaining(self, kinds: Sequence[Hashable], age: float, shares: Seconds) -> Seconds:
        """After how many seconds each share of such gangs has ended, from now on; infinite where nobody knows."""
        ends, risks = self._of_kind(kinds, age)
        first = np.searchsorted(ends, age, side="right")
        # As Kaplan and Meier have it. One more is at risk at each end: the gang in question.
        alive = np.cumprod(1 - 1 / (risks[first:] + 1))
        known = np.concatenate([ends[first:], [np.inf]])
        # `alive` falls: the first end at which no more than 1 - share are left.
        return np.asarray(known[np.searchsorted(-alive, shares - 1 - 1e-12)] - age)

    def _of_kind(self, kinds: Sequence[Hashable], age: float) -> tuple[Seconds, Seconds]:
        for kind in kinds:
            if kind in self._sorts:
                ends, risks = self._table(kind)
                if len(ends) - np.searchsorted(ends, age, side="right") >= ALIKE:
                    return ends, risks
        return self._table(_ALL)

    def _table(self, kind: Hashable) -> tuple[Seconds, Seconds]:
        """When gangs have ended, in order, and how many were still running just before each of these ends."""
        if kind not in self._tables:
            lives = self._sorts[kind]
            over = [life.seconds for life in lives if life.is_over]
            ends = np.sort(np.array(over[-LATEST:], np.float64))
            lasting = np.sort(np.array([life.seconds for life in lives if not life.is_over], np.float64))
            later = len(ends) - np.arange(len(ends))
            running = len(lasting) - np.searchsorted(lasting, ends, side="left")
            self._tables[kind] = ends, (later + running).astype(np.float64)
        return self._tables[kind]
