"""One round as it goes on: what is left on the nodes, what is kept for whom, and what was decided already.

All policies are made of these pieces; what differs between them is who may go before whom.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter

import numpy as np

from tarragon.base.resources import Resources
from tarragon.job.model import Replica
from tarragon.scheduling.api.cycle_memory import Shape, Standing, Why
from tarragon.scheduling.api.decision import (
    BEHIND_OTHERS,
    INSUFFICIENT_RESOURCES,
    NEVER_FITS,
    NODES_AWAY,
    QUOTA_EXCEEDED,
    RESOURCES_RELEASING,
    AboutGang,
    Evict,
    Place,
    Resize,
    Wait,
)
from tarragon.scheduling.api.rules import span
from tarragon.scheduling.api.snapshot import Demand, Gang, RunningGang, Snapshot
from tarragon.scheduling.cycle.preemption_simulation import Holdings
from tarragon.scheduling.cycle.shares import Shares
from tarragon.scheduling.cycle.shrink import Spares
from tarragon.scheduling.cycle.victims import has_as_much, holders
from tarragon.scheduling.explain import wait_messages
from tarragon.scheduling.placement.fit import Placement, could_fit, place
from tarragon.scheduling.state.inventory import Inventory, Scores
from tarragon.scheduling.state.ledger import Ledger
from tarragon.scheduling.state.node_requests import Amounts, Ask

_LONG_AGO = dt.datetime.min.replace(tzinfo=dt.UTC)

Part = tuple[str, Resources, int]
"""A node, what one replica holds there, and how many there are of it."""


@dataclass(slots=True)
class Kind:
    """Gangs of one shape, and what a round has found out about them."""

    shape: Shape
    smallest: Sequence[Demand]
    """What each of them needs at least."""
    asks: Sequence[tuple[Ask, int]]
    """The same, as it is asked of the nodes, and how often."""
    never: Why | None
    """Of those that could not run on the empty cluster."""
    refused: Why | None = None
    """Of those for which there is no room."""
    is_not_soon: bool = False
    """There won't be, either, when those have left who are leaving."""
    in_vain: int | None = None
    """All that run with a lower priority than this together hold too little."""
    passed: bool | None = None
    """One has to wait, whatever is asked: whether it is aged. Those that come after it are no more urgent."""


class _Kinds(dict[Shape, Kind]):
    """Ten thousand look-ups a round, nearly all of what is there: a dictionary's own are the quickest."""

    def __init__(self, nodes: Inventory) -> None:
        self._nodes = nodes

    def __missing__(self, shape: Shape) -> Kind:
        asks = [(self._nodes.ask(demand), demand.minimum) for demand in shape.smallest]
        kind = self[shape] = Kind(shape, shape.smallest, asks, shape.never)
        return kind


class Round:
    """`free` is what can be had now, less what is kept for somebody; `soon` has besides what is about to be free."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = replace(snapshot, running=sorted(snapshot.running, key=attrgetter("name")))
        self.nodes = Inventory.of(snapshot.nodes)
        self.free = Ledger.of_free(self.nodes)
        self.soon = self.free.soon()
        self.shares = Shares(snapshot)
        self.decisions: list[AboutGang] = []
        self.began: dict[str, int] = {}
        """Gangs that start in this round, and with how many replicas."""
        self.changed: set[str] = set()
        """Gangs that run and of which something is decided."""
        self._open: Ledger | None = None
        self._holders: Holdings | None = None
        self._admitted: Scores | None = None
        self._number_of: dict[str, int] | None = None
        self._spares: Spares | None = None
        self.old_enough = snapshot.now - span(snapshot.rules.aged)
        self._everything: Ledger | None = None
        self._with_away: Ledger | None = None
        self._is_releasing = bool(self.nodes.releasing.any())
        self.lore = self.nodes.lore(snapshot.away)
        self.kinds = _Kinds(self.nodes)
        """To be looked up once for each gang: what is asked about it takes the kind along."""
        self._in_vain: list[Kind] = []
        """Those that have asked for what will be free soon, since some of it was released."""
        self._queued: dict[str, dict[int, str]] = {}

    def add(self, decision: AboutGang) -> None:
        self.decisions.append(decision)

    def standing(self, gang: Gang) -> Standing:
        """Of one that has not waited in the round before."""
        return Standing(gang, self.lore.shape(gang.demands, lambda: self._shape(gang)))

    def hopeless(self, standing: Standing, kind: Kind) -> Wait | None:
        """Why it could not start now whoever went before it: the cluster, its nodes, its quota."""
        if kind.never is not None:
            return standing.told(kind.never)
        quota = self.shares.quota(standing.gang.queue)
        return self._over_quota(standing, kind, quota) if quota else None

    def is_aged(self, gang: Gang) -> bool:
        """Whether it has waited for so long that nobody is to pass it for good."""
        return gang.queued <= self.old_enough

    def started(self, gang: Gang, kind: Kind) -> Place | None:
        """As large as it goes on what is free; None when that is too little."""
        if kind.refused is not None or lacks(kind, self.free):
            return None
        demands = self.shares.allowed(gang.queue, gang.demands)
        nodes = None if demands is None else place(demands, self.free)
        if nodes is None:
            return None
        self.taken(gang, nodes)
        self.began[gang.name] = len(nodes)
        return Place(gang.name, nodes)

    def promised(self, gang: Gang, kind: Kind) -> Wait | None:
        """It starts once those have left who are leaving: its places are kept. None if that is not enough for it."""
        may_be = self._is_releasing and not kind.is_not_soon and not lacks(kind, self.soon)
        nodes = place(kind.smallest, self.soon) if may_be else None
        if nodes is None:
            kind.is_not_soon = True
            self._in_vain.append(kind)
            if gang.preempts:  # If others give way to it after all, what they release clears this again.
                kind.passed = self.is_aged(gang)
            return None
        self._set_aside(parts_of(gang.demands, nodes))
        self.shares.take(gang, nodes)
        return Wait(gang.name, RESOURCES_RELEASING, wait_messages.RELEASING)

    def reserve(self, gang: Gang, nodes: Placement) -> None:
        """What is free there, or will be, is nobody else's."""
        parts = parts_of(gang.demands, nodes)
        self._set_aside(parts)
        _keep(self.soon, parts)
        self.shares.take(gang, nodes)

    def refused(self, standing: Standing, kind: Kind) -> Wait:
        """It does not fit: because there is too little, or because what there is is kept for others."""
        if kind.refused is None:
            opened = self._open
            if opened is not None and not lacks(kind, opened) and has_as_much(kind.smallest, opened):
                why = BEHIND_OTHERS, wait_messages.KEPT
            else:
                ledger = self.free if self._open is None else self._open
                why = INSUFFICIENT_RESOURCES, wait_messages.short(kind.shape.least, ledger)
            kind.refused = kind.shape.refused(why)
        return standing.told(kind.refused)

    @property
    def holders(self) -> Holdings:
        """By the number in `snapshot.running`. Made when somebody asks."""
        if self._holders is None:
            self._holders = holders(self.snapshot.running, self.nodes)
        return self._holders

    @property
    def admitted(self) -> Scores:
        """When those that run were, in seconds, by the same number; of whom nobody knows it, long ago."""
        if self._admitted is None:
            moments = [(gang.admitted or _LONG_AGO).timestamp() for gang in self.snapshot.running]
            self._admitted = np.array(moments, np.float64)
        return self._admitted

    def unchanged(self, numbers: Amounts) -> Amounts:
        """Those of them, who run, about whom nothing is decided."""
        if self._number_of is None:
            self._number_of = {gang.name: number for number, gang in enumerate(self.snapshot.running)}
        stays = np.ones(len(self._number_of), np.bool_)
        stays[[self._number_of[name] for name in self.changed]] = False
        return numbers[stays[numbers]]

    def spares(self) -> Spares:
        """What those that run could do without, for somebody who may take some of it."""
        if self._spares is None:
            self._spares = Spares(self.snapshot.running, self.nodes)
        return self._spares.copy()

    def resize(self, gang: RunningGang, nodes: Mapping[Replica, str], reason: str) -> None:
        """It goes on with these; what it gives back is free once its pods have ended."""
        self.add(Resize(gang.name, nodes, reason))
        self.changed.add(gang.name)
        gone = {replica: node for replica, node in gang.nodes.items() if replica not in nodes}
        if gone:
            self._release(gang, gone)

    def evict(self, gang: RunningGang, code: str, message: str) -> None:
        """It gives everything back."""
        self.add(Evict(gang.name, code, message))
        self.changed.add(gang.name)
        self._release(gang, gang.nodes)

    def taken(self, gang: Gang | RunningGang, nodes: Mapping[Replica, str]) -> None:
        """Somebody has got these of what is free."""
        parts = parts_of(gang.demands, nodes)
        for ledger in filter(None, (self.soon, self._open)):
            _keep(ledger, parts)
        self.shares.take(gang, nodes)

    def moved(self, gang: RunningGang, nodes: Mapping[Replica, str]) -> None:
        """What it has held all along, it holds elsewhere."""
        _keep(self.soon, parts_of(gang.demands, nodes))

    def _release(self, gang: RunningGang, nodes: Mapping[Replica, str]) -> None:
        self._is_releasing = True
        for kind in self._in_vain:
            kind.is_not_soon, kind.passed = False, None
        self._in_vain.clear()
        holding = {replica: node for replica, node in nodes.items() if replica not in gang.finished}
        self.shares.give(gang, holding)
        for node, amounts, number in parts_of(gang.demands, holding):
            if node in self.nodes.row_of:
                self.soon.give(node, amounts, number)

    def _set_aside(self, parts: Sequence[Part]) -> None:
        if self._open is None:
            self._open = self.free.copy()
        _keep(self.free, parts)

    def _over_quota(self, standing: Standing, kind: Kind, quota: Resources) -> Wait | None:
        """The first of a namespace is told all amounts; what it holds changes too often to be told to thousands."""
        gang = standing.gang
        known = self._queued.get(gang.queue, {})
        words = known.get(id(kind))
        if words is None:
            if self.shares.allowed(gang.queue, gang.demands) is not None:
                return None
            least = kind.shape.least
            if self.is_aged(gang) and all(least.get(name, 0) <= limit for name, limit in quota.items()):
                self.shares.keep(gang.queue, least)
            self._queued[gang.queue] = {**known, id(kind): wait_messages.behind_in_queue(gang, quota)}
            held = self.shares.held(gang.queue)
            words = self._queued[gang.queue][id(kind)] if known else wait_messages.over_quota(gang, held, quota)
        return standing.told((QUOTA_EXCEEDED, words))

    def _shape(self, gang: Gang) -> Shape:
        smallest = [replace(demand, wish=demand.minimum, maximum=0) for demand in gang.demands]
        return Shape(smallest, wait_messages.least(smallest), self._why_never(gang, smallest))

    def _why_never(self, gang: Gang, smallest: Sequence[Demand]) -> Why | None:
        if self._everything is None:
            self._everything = Ledger.of_capacity(self.nodes)
        if could_fit(smallest, self._everything):
            return None
        if self.snapshot.away:
            if self._with_away is None:
                self._with_away = Ledger.of_capacity([*self.snapshot.nodes, *self.snapshot.away])
            if could_fit(smallest, self._with_away):
                return NODES_AWAY, wait_messages.away(gang, self.snapshot)
        crowded = wait_messages.crowded(gang)
        return (
            (INSUFFICIENT_RESOURCES, crowded)
            if crowded
            else (NEVER_FITS, wait_messages.never_fits(gang, self.snapshot))
        )


def lacks(kind: Kind, ledger: Ledger) -> bool:
    """Whether it is known that there is too little for it: told of hundreds of kinds before `place` looks closer."""
    for ask, count in kind.asks:  # noqa: SIM110  # a generator takes as long as the question itself
        if ledger.lacks(ask, count):
            return True
    return False


def amounts_of(demands: Sequence[Demand], nodes: Mapping[Replica, str]) -> dict[Replica, Resources]:
    """What each replica holds where it runs; of a type that nobody asks for any more, that is not known."""
    each = {demand.type: demand.each for demand in demands}
    return {replica: each.get(replica.type, {}) for replica in nodes}


def parts_of(demands: Sequence[Demand], nodes: Mapping[Replica, str]) -> list[Part]:
    """The same by node: a gang has several equal replicas on most."""
    each = {demand.type: demand.each for demand in demands}
    runs = groupby(nodes.items(), key=lambda item: (item[0].type, item[1]))
    return [(node, each.get(kind, {}), len(list(run))) for (kind, node), run in runs]


def _keep(ledger: Ledger, parts: Iterable[Part]) -> None:
    for node, amounts, number in parts:
        ledger.keep(node, amounts, number)
