"""What is found out about gangs and stays true from round to round, as long as the nodes have what they have.

Thousands of gangs wait for minutes, and in each round the same is asked about them: what never changes is told once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from tarragon.job.model import Replica
from tarragon.scheduling.api.decision import Wait
from tarragon.scheduling.api.snapshot import Demand, Gang, NodeState, RunningGang

Told = TypeVar("Told")
Why = tuple[str, str]
"""The code and the words of a wait."""

_KEPT = 20_000
"""Jobs come and go for months, what they asked for must not stay."""


@dataclass(slots=True, eq=False)
class Shape:
    """Gangs whose demands any nodes answer alike; each is one object, so that it is quickly compared."""

    smallest: Sequence[Demand]
    """What each of them needs at least."""
    least: dict[str, int]
    """The same as amounts."""
    never: Why | None
    """Of those that could not run on the empty cluster."""
    _refused: Why | None = None

    def refused(self, why: Why) -> Why:
        """The same object as in the round before if it says the same: whoever was told it needs not be told again."""
        if self._refused is None or self._refused != why:
            self._refused = why
        return self._refused


@dataclass(slots=True, eq=False)
class Standing:
    """A gang that waits, with what is kept about it: the same object in each round while the gang is the same."""

    gang: Gang
    shape: Shape
    why: Why | None = None
    """What it was told last."""
    wait: Wait | None = None
    """The decision that told it."""

    def told(self, why: Why) -> Wait:
        """The same object as in the round before if it is told the same: ten thousand new ones in each round are what
        the garbage collector stops for.
        """
        wait = self.wait
        if wait is None or (wait.code, wait.message) != why:
            wait = self.wait = Wait(self.gang.name, *why)
        self.why = why
        return wait


class Lore:
    """Of nodes with these capacities, while the same ones are away."""

    def __init__(self, away: Sequence[NodeState] = ()) -> None:
        self.away = tuple(away)
        self.line: list[Standing] = []
        """Who waited in the last round, in their order."""
        self.in_line: dict[int, Standing] = {}
        """By which object the gang is."""
        self._by_demands: dict[int, tuple[Sequence[Demand], Shape]] = {}
        self._by_shapes: dict[Hashable, Shape] = {}

    def shape(self, demands: Sequence[Demand], made: Callable[[], Shape]) -> Shape:
        """By which object they are, which is quick; else by what they say; else made."""
        known = self._by_demands.get(id(demands))
        if known is not None and known[0] is demands:
            return known[1]
        if max(len(self._by_demands), len(self._by_shapes)) >= _KEPT:
            self._by_demands.clear()
            self._by_shapes.clear()
        said = tuple(demand.shape for demand in demands)
        shape = self._by_shapes.get(said)
        if shape is None:
            shape = self._by_shapes[said] = made()
        self._by_demands[id(demands)] = demands, shape
        return shape


class OfRunning(Generic[Told]):
    """By gang that runs, while it stays the same object: few change from round to round."""

    def __init__(self) -> None:
        self._told: dict[int, tuple[RunningGang, Told]] = {}

    def of(self, gang: RunningGang, tell: Callable[[RunningGang], Told]) -> Told:
        known = self._told.get(id(gang))
        if known is None or known[0] is not gang:
            if len(self._told) >= _KEPT:
                self._told.clear()
            known = self._told[id(gang)] = gang, tell(gang)
        return known[1]


@dataclass(frozen=True, slots=True, eq=False)
class Loose:
    """What one gang could give back: a row for each replica, the first to go first."""

    replicas: Sequence[Replica]
    rows: npt.NDArray[np.int64]
    """Of their nodes."""
    freed: npt.NDArray[np.int64]
    """By column of the inventory."""
    order: npt.NDArray[np.float64]
    """What decides who goes first: priority, less above its minimum, less of its maximum, age."""
