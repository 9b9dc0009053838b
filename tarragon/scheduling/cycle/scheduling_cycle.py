"""The working state of one scheduling cycle: free and reserved resources, and the decisions so far.

All policies are built on it; they differ in which gangs may go before which.
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
from tarragon.scheduling.state.memory import Memory, Shape, Standing, Why
from tarragon.scheduling.state.node_requests import Amounts, Ask
from tarragon.scheduling.state.request_table import RequestTable

_LONG_AGO = dt.datetime.min.replace(tzinfo=dt.UTC)

Part = tuple[str, Resources, int]
"""A node, what one replica holds there, and the number of such replicas."""


@dataclass(slots=True, eq=False)
class Kind:
    """What one cycle has found out about the gangs of one shape."""

    shape: Shape
    smallest: Sequence[Demand]
    """The demands at the gang's minimum size."""
    asks: Sequence[tuple[Ask, int]]
    """The same as node requests, each with its number of replicas."""
    never: Why | None
    """Why such a gang does not fit even the empty cluster; None if it does."""
    refused: Why | None = None
    """Why there is no room for such a gang now; None if it was not tried or fits."""
    is_not_soon: bool = False
    """Whether there is no room even after terminating pods have ended."""
    in_vain: int | None = None
    """A priority up to which preemption is known not to help: the gangs below it together hold too little."""
    passed: bool | None = None
    """Set once such a gang has to wait whatever else is tried: whether it was starving. The gangs after it are no more
    urgent.
    """


class _Kinds(dict[Shape, Kind]):
    """A dictionary that creates missing values. Nearly all of ten thousand look-ups per cycle are hits, which are
    fastest this way.
    """

    def __init__(self, requests: RequestTable) -> None:
        self._requests = requests

    def __missing__(self, shape: Shape) -> Kind:
        requests = [(self._requests.of(demand), demand.minimum) for demand in shape.smallest]
        kind = self[shape] = Kind(shape, shape.smallest, requests, shape.never)
        return kind


class Round:
    """One scheduling cycle. `free` is what can be used now, less reservations; `soon` adds what terminating pods
    release.
    """

    def __init__(self, snapshot: Snapshot, memory: Memory) -> None:
        self.snapshot = replace(snapshot, running=sorted(snapshot.running, key=attrgetter("name")))
        self.nodes = Inventory.of(snapshot.nodes)
        self.memory = memory.of(self.nodes, snapshot.away)
        self.free = Ledger.of_free(self.nodes, self.memory)
        self.soon = self.free.soon()
        self.shares = Shares(snapshot)
        self.decisions: list[AboutGang] = []
        self.began: dict[str, int] = {}
        """The gangs that start in this cycle, with their number of replicas."""
        self.changed: set[str] = set()
        """The running gangs about which this cycle has decided something."""
        self._before_reservations: Ledger | None = None
        self._holders: Holdings | None = None
        self._admitted: Scores | None = None
        self._index_of: dict[str, int] | None = None
        self._reclaimable: Spares | None = None
        self.old_enough = snapshot.now - span(snapshot.rules.aged)
        self._empty_cluster: Ledger | None = None
        self._with_unavailable: Ledger | None = None
        self._is_releasing = bool(self.nodes.releasing.any())
        self.kinds = _Kinds(self.memory.requests)
        """The state of each shape. Look it up once per gang and pass it along."""
        self._without_room_soon: list[Kind] = []
        """Kinds without room in `soon`, to be tried again once more is released."""
        self._quota_messages: dict[str, dict[Kind, str]] = {}

    def add(self, decision: AboutGang) -> None:
        self.decisions.append(decision)

    def standing(self, gang: Gang) -> Standing:
        """Create the cycle memory's record of a gang that did not wait in the last cycle."""
        return Standing(gang, self.memory.shape(gang.demands, lambda: self._shape(gang)))

    def hopeless(self, standing: Standing, kind: Kind) -> Wait | None:
        """Return why the gang cannot start now whatever goes before it: cluster size, unavailable nodes or quota."""
        if kind.never is not None:
            return standing.told(kind.never)
        quota = self.shares.quota(standing.gang.queue)
        return self._over_quota(standing, kind, quota) if quota else None

    def is_aged(self, gang: Gang) -> bool:
        """Whether the gang has waited so long that nothing may pass it for good."""
        return gang.queued <= self.old_enough

    def started(self, gang: Gang, kind: Kind) -> Place | None:
        """Start the gang on free resources, as large as possible; None if there is too little."""
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
        """Reserve what terminating pods release if the gang can start on that; None if it is not enough."""
        is_possible = self._is_releasing and not kind.is_not_soon and not lacks(kind, self.soon)
        nodes = place(kind.smallest, self.soon) if is_possible else None
        if nodes is None:
            kind.is_not_soon = True
            self._without_room_soon.append(kind)
            if gang.preempts:  # Cleared again in `_release` if gangs are preempted for it after all.
                kind.passed = self.is_aged(gang)
            return None
        self._set_aside(parts_of(gang.demands, nodes))
        self.shares.take(gang, nodes)
        return Wait(gang.name, RESOURCES_RELEASING, wait_messages.RELEASING)

    def reserve(self, gang: Gang, nodes: Placement) -> None:
        """Reserve these nodes for the gang: what is free there and what becomes free."""
        parts = parts_of(gang.demands, nodes)
        self._set_aside(parts)
        _reserve(self.soon, parts)
        self.shares.take(gang, nodes)

    def refused(self, standing: Standing, kind: Kind) -> Wait:
        """Return the wait of a gang that does not fit, because of too little room or because of reservations."""
        if kind.refused is None:
            unreserved = self._before_reservations
            if unreserved is not None and not lacks(kind, unreserved) and has_as_much(kind.smallest, unreserved):
                why = BEHIND_OTHERS, wait_messages.KEPT
            else:
                ledger = self.free if self._before_reservations is None else self._before_reservations
                why = INSUFFICIENT_RESOURCES, wait_messages.short(kind.shape.least, ledger)
            kind.refused = kind.shape.refused(why)
        return standing.told(kind.refused)

    @property
    def holders(self) -> Holdings:
        """What running gangs hold, by index in `snapshot.running`. Computed on first use."""
        if self._holders is None:
            self._holders = holders(self.snapshot.running, self.nodes, self.memory)
        return self._holders

    @property
    def admitted(self) -> Scores:
        """The admission times of running gangs in seconds, by the same index. A gang without one counts as very old."""
        if self._admitted is None:
            moments = [(gang.admitted or _LONG_AGO).timestamp() for gang in self.snapshot.running]
            self._admitted = np.array(moments, np.float64)
        return self._admitted

    def unchanged(self, indexes: Amounts) -> Amounts:
        """Keep those of the indexes of running gangs about which nothing is decided."""
        if self._index_of is None:
            self._index_of = {gang.name: index for index, gang in enumerate(self.snapshot.running)}
        is_unchanged = np.ones(len(self._index_of), np.bool_)
        is_unchanged[[self._index_of[name] for name in self.changed]] = False
        return indexes[is_unchanged[indexes]]

    def spares(self) -> Spares:
        """Return what running gangs could give back, as a copy that the caller may change."""
        if self._reclaimable is None:
            self._reclaimable = Spares(self.snapshot.running, self.nodes, self.memory)
        return self._reclaimable.copy()

    def resize(self, gang: RunningGang, nodes: Mapping[Replica, str], reason: str) -> None:
        """Let the gang continue on these nodes. What it gives back becomes free once its pods have ended."""
        self.add(Resize(gang.name, nodes, reason))
        self.changed.add(gang.name)
        removed = {replica: node for replica, node in gang.nodes.items() if replica not in nodes}
        if removed:
            self._release(gang, removed)

    def evict(self, gang: RunningGang, code: str, message: str) -> None:
        """Withdraw the gang's admission. What it holds becomes free once its pods have ended."""
        self.add(Evict(gang.name, code, message))
        self.changed.add(gang.name)
        self._release(gang, gang.nodes)

    def taken(self, gang: Gang | RunningGang, nodes: Mapping[Replica, str]) -> None:
        """Record that a gang has got free resources on these nodes."""
        parts = parts_of(gang.demands, nodes)
        for ledger in filter(None, (self.soon, self._before_reservations)):
            _reserve(ledger, parts)
        self.shares.take(gang, nodes)

    def moved(self, gang: RunningGang, nodes: Mapping[Replica, str]) -> None:
        """Record that replicas which already count towards shares have got other nodes."""
        _reserve(self.soon, parts_of(gang.demands, nodes))

    def _release(self, gang: RunningGang, nodes: Mapping[Replica, str]) -> None:
        self._is_releasing = True
        for kind in self._without_room_soon:
            kind.is_not_soon, kind.passed = False, None
        self._without_room_soon.clear()
        released = {replica: node for replica, node in nodes.items() if replica not in gang.finished}
        self.shares.give(gang, released)
        for node, amounts, number in parts_of(gang.demands, released):
            if node in self.nodes.row_of:
                self.soon.give(node, amounts, number)

    def _set_aside(self, parts: Sequence[Part]) -> None:
        if self._before_reservations is None:
            self._before_reservations = self.free.copy()
        _reserve(self.free, parts)

    def _over_quota(self, standing: Standing, kind: Kind, quota: Resources) -> Wait | None:
        """Return a wait with `QUOTA_EXCEEDED` if the gang exceeds its quota.

        Only the first gang of a queue is told what the queue holds: that changes too often to update thousands of
        messages.
        """
        gang = standing.gang
        earlier = self._quota_messages.get(gang.queue, {})
        message = earlier.get(kind)
        if message is None:
            if self.shares.allowed(gang.queue, gang.demands) is not None:
                return None
            least = kind.shape.least
            if self.is_aged(gang) and all(least.get(name, 0) <= limit for name, limit in quota.items()):
                self.shares.keep(gang.queue, least)
            self._quota_messages[gang.queue] = {**earlier, kind: wait_messages.behind_in_queue(gang, quota)}
            held = self.shares.held(gang.queue)
            message = self._quota_messages[gang.queue][kind] if earlier else wait_messages.over_quota(gang, held, quota)
        return standing.told((QUOTA_EXCEEDED, message))

    def _shape(self, gang: Gang) -> Shape:
        smallest = [replace(demand, wish=demand.minimum, maximum=0) for demand in gang.demands]
        return Shape(smallest, wait_messages.least(smallest), self._why_never(gang, smallest))

    def _why_never(self, gang: Gang, smallest: Sequence[Demand]) -> Why | None:
        if self._empty_cluster is None:
            self._empty_cluster = Ledger.of_capacity(self.nodes, self.memory)
        if could_fit(smallest, self._empty_cluster):
            return None
        if self.snapshot.away:
            if self._with_unavailable is None:
                self._with_unavailable = Ledger.of_capacity([*self.snapshot.nodes, *self.snapshot.away])
            if could_fit(smallest, self._with_unavailable):
                return NODES_AWAY, wait_messages.away(gang, self.snapshot)
        crowded = wait_messages.crowded(gang)
        return (
            (INSUFFICIENT_RESOURCES, crowded)
            if crowded
            else (NEVER_FITS, wait_messages.never_fits(gang, self.snapshot))
        )


def lacks(kind: Kind, ledger: Ledger) -> bool:
    """Whether it is already known that there is too little room: a quick check before the closer look of `place`."""
    for request, count in kind.asks:  # noqa: SIM110  # a generator would take as long as the check itself
        if ledger.lacks(request, count):
            return True
    return False


def amounts_of(demands: Sequence[Demand], nodes: Mapping[Replica, str]) -> dict[Replica, Resources]:
    """What each replica holds where it runs; nothing for a replica type that the job no longer has."""
    each = {demand.type: demand.each for demand in demands}
    return {replica: each.get(replica.type, {}) for replica in nodes}


def parts_of(demands: Sequence[Demand], nodes: Mapping[Replica, str]) -> list[Part]:
    """The same by node: most nodes of a gang run several equal replicas."""
    each = {demand.type: demand.each for demand in demands}
    runs = groupby(nodes.items(), key=lambda item: (item[0].type, item[1]))
    return [(node, each.get(replica_type, {}), len(list(run))) for (replica_type, node), run in runs]


def _reserve(ledger: Ledger, parts: Iterable[Part]) -> None:
    for node, amounts, number in parts:
        ledger.keep(node, amounts, number)
