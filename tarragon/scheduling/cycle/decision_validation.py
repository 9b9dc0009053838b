"""A policy's decisions held against the snapshot that they were made on: a policy may be new, or wrong.

What is checked is what nobody may ever see: a node that is oversold, a part of a gang, a size outside of its bounds.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from tarragon.job.model import Replica, ReplicaType
from tarragon.scheduling.api.decision import AboutGang, Again, Decision, Evict, Place, Resize, Wait
from tarragon.scheduling.api.snapshot import Demand, Gang, RunningGang, Snapshot
from tarragon.scheduling.state.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Violation:
    """A decision that must not become true, and why."""

    decision: AboutGang
    why: str


@dataclass(frozen=True, slots=True)
class Checked:
    sound: Sequence[AboutGang]
    violations: Sequence[Violation]
    again: dt.datetime | None
    """When to decide again even if nothing happens until then."""


def checked(snapshot: Snapshot, decisions: Sequence[Decision]) -> Checked:
    """In the order of the decisions: what a refused one would have taken, the next ones may have."""
    against = _Against(snapshot)
    sound: list[AboutGang] = []
    violations: list[Violation] = []
    again: list[dt.datetime] = []
    undecided = against.undecided
    for decision in decisions:
        # Nearly all are waits of gangs that wait: of these there may be ten thousand.
        if isinstance(decision, Wait) and decision.gang in undecided:
            undecided.remove(decision.gang)
            sound.append(decision)
        elif isinstance(decision, Again):
            again.append(decision.at)
        else:
            why = next(against.faults(decision), None)
            if why is None:
                sound.append(decision)
            else:
                violations.append(Violation(decision, why))
    return Checked(sound, violations, min(again, default=None))


class _Against:
    """What is left after the decisions that were found sound."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._waiting = {gang.name: gang for gang in snapshot.waiting}
        self._running = {gang.name: gang for gang in snapshot.running}
        self._ledger = Ledger.of_free(snapshot.nodes)
        self.undecided = set(self._waiting)
        """Of those that wait. Whoever finds a decision about one of them sound without asking takes it out."""
        self._decided: set[str] = set()
        """Of all others."""

    def faults(self, decision: AboutGang) -> Iterator[str]:
        """Nothing, after which the decision counts."""
        if decision.gang in self._decided or (decision.gang in self._waiting and decision.gang not in self.undecided):
            yield "it is decided about already"
        match decision:
            case Wait(name):
                if name not in self._waiting and name not in self._running:
                    yield "there is no such gang"
            case Evict(name):
                if name not in self._running:
                    yield "it does not run"
            case Place(name, nodes):
                yield from self._of_place(self._waiting.get(name), nodes)
            case Resize(name, nodes):
                yield from self._of_resize(self._running.get(name), nodes)
            case _:
                assert_never(decision)
        self.undecided.discard(decision.gang)
        self._decided.add(decision.gang)

    def _of_place(self, gang: Gang | None, nodes: Mapping[Replica, str]) -> Iterator[str]:
        if gang is None:
            yield "it does not wait"
            return
        numbers = Counter(replica.type for replica in nodes)
        demands = {demand.type: demand for demand in gang.demands}
        for demand in gang.demands:
            number = numbers[demand.type]
            if not demand.minimum <= number <= demand.most:
                yield _out_of_bounds(demand, number)
            if any(Replica(demand.type, index) not in nodes for index in range(number)):
                yield f"its {demand.type.word}s are not counted from 0 on"
        yield from self._taken(nodes, demands)

    def _of_resize(self, gang: RunningGang | None, nodes: Mapping[Replica, str]) -> Iterator[str]:
        """What was out of bounds before, as after an edit of them, may stay so, but not get worse."""
        if gang is None:
            yield "it does not run"
            return
        before = Counter(replica.type for replica in gang.nodes)
        after = Counter(replica.type for replica in nodes)
        demands = {demand.type: demand for demand in gang.demands}
        for demand in gang.demands:
            was, number = before[demand.type], after[demand.type]
            if not min(demand.minimum, was) <= number <= max(demand.most, was):
                yield _out_of_bounds(demand, number)
            first = Replica(demand.type, 0)
            if demand.minimum and first in gang.nodes and first not in nodes:
                yield f"{first} is the last of its kind to go"
        added = {replica: node for replica, node in nodes.items() if gang.nodes.get(replica) != node}
        yield from self._taken(added, demands)

    def _taken(self, nodes: Mapping[Replica, str], demands: Mapping[ReplicaType, Demand]) -> Iterator[str]:
        """All of it or, with the first fault, nothing."""
        taken: dict[Replica, str] = {}
        for replica, node in nodes.items():
            demand = demands.get(replica.type)
            fault = self._refused(replica, node, demand)
            if demand is None or fault is not None:
                self._ledger.undo(taken, {each: demands[each.type].each for each in taken})
                yield fault or ""
                return
            self._ledger.take(node, demand.each)
            taken[replica] = node

    def _refused(self, replica: Replica, node: str, demand: Demand | None) -> str | None:
        if demand is None:
            return f"nobody has asked for a {replica.type.word}"
        if node not in self._ledger.nodes.row_of:
            return f"{replica} would be on {node or 'no node'}, which takes nobody"
        if node not in demand.eligible:
            return f"{replica} may not run on {node}"
        return None if self._ledger.fits(node, demand.each) else f"{node} has no room for {replica}"


def _out_of_bounds(demand: Demand, number: int) -> str:
    return f"{number} {demand.type.word}s are not between {demand.minimum} and {demand.most}"
