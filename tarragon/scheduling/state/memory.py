"""What one scheduling cycle remembers for the next: results that stay valid while the nodes keep their capacity.

A policy gets the memory as an argument, and decides the same with an empty one. It is needed for speed: thousands of
gangs may wait for minutes, and each cycle would compute the same answers for them again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from tarragon.job.model import Replica
from tarragon.job.status import WaitReason
from tarragon.scheduling.api.decision import Decision, Defer
from tarragon.scheduling.api.snapshot import (
    Demand,
    NodeState,
    RunningGang,
    Snapshot,
    WaitingGang,
    is_equal_but_for_work,
)
from tarragon.scheduling.state.allocations import AllocationCache
from tarragon.scheduling.state.candidates import Candidate, CandidateTable
from tarragon.scheduling.state.inventory import Inventory
from tarragon.scheduling.state.node_requests import NodeRequest
from tarragon.scheduling.state.request_table import RequestTable
from tarragon.scheduling.state.waiting_groups import WaitingGroups

Value = TypeVar("Value")

_MAX_ENTRIES = 20_000
"""The size at which a cache is cleared: jobs come and go for months, and their demands must not accumulate."""


@dataclass(slots=True, eq=False)
class GangShape:
    """Gangs whose demands always get the same answers from the same nodes. They share one object, which makes comparing
    them cheap.
    """

    minimum_demands: Sequence[Demand]
    """The demands at the gang's minimum size."""
    node_requests: Sequence[tuple[NodeRequest, int]]
    """The same as node requests, each with its number of replicas."""
    minimum_resources: dict[str, int]
    """The total resources of the minimum size."""
    never_fits_reason: WaitReason | None
    """Why such a gang does not fit even the empty cluster; None if it does."""
    _refused: WaitReason | None = None

    def interned(self, why: WaitReason) -> WaitReason:
        """Return an equal earlier reason if there is one, so that an unchanged reason is recognized by identity."""
        if self._refused is None or self._refused != why:
            self._refused = why
        return self._refused


@dataclass(slots=True, eq=False)
class QueueEntry:
    """A waiting gang and what is remembered about it. The object stays the same from cycle to cycle while the gang
    does.
    """

    gang: WaitingGang
    shape: GangShape
    last_reason: WaitReason | None = None
    """The reason of the last wait decision."""
    last_decision: Defer | None = None
    """The last wait decision."""
    candidate: Candidate | None = None
    """The gang as a candidate for a size; None until a policy needs it."""

    def defer(self, why: WaitReason) -> Defer:
        """Return a wait for this reason: the previous decision if the reason has not changed. Ten thousand new objects
        in each cycle would make the garbage collector pause.
        """
        wait = self.last_decision
        if wait is None or (self.last_reason is not why and self.last_reason != why):
            wait = self.last_decision = Defer(self.gang.name, why.code, why.message, why.cause)
        self.last_reason = why
        return wait


class RunningGangCache(Generic[Value]):
    """A cache with one value for each running gang: few gangs change between cycles. No value depends on what is known
    of a gang's work, which changes all the time.
    """

    def __init__(self) -> None:
        self._values: dict[str, tuple[RunningGang, Value]] = {}
        """By name."""

    def get_all(self, gangs: Iterable[RunningGang], compute: Callable[[RunningGang], Value]) -> list[Value]:
        """Return the values of all these gangs."""
        known, found = self._values, []
        for gang in gangs:
            cached = known.get(gang.name)
            found.append(cached[1] if cached is not None and cached[0] is gang else self.get(gang, compute))
        return found

    def get(self, gang: RunningGang, compute: Callable[[RunningGang], Value]) -> Value:
        cached = self._values.get(gang.name)
        if cached is not None and cached[0] is gang:
            return cached[1]
        if cached is None and len(self._values) >= _MAX_ENTRIES:
            self._values.clear()
        # The newest object is kept, so that the next look-up finds it without a comparison.
        is_equal = cached is not None and is_equal_but_for_work(cached[0], gang)
        value = cached[1] if cached is not None and is_equal else compute(gang)
        self._values[gang.name] = gang, value
        return value


@dataclass(frozen=True, slots=True, eq=False)
class ReclaimableReplicas:
    """The replicas that one gang could give back, a row for each; the first row is given back first."""

    replicas: Sequence[Replica]
    rows: npt.NDArray[np.int64]
    """The inventory row of each replica's node."""
    freed: npt.NDArray[np.int64]
    """What each replica would free, by column of the inventory."""
    sort_keys: npt.NDArray[np.float64]
    """The sort keys of each row: priority, replicas above the minimum (negated), part of the maximum (negated), age."""


class ClusterMemory:
    """What is remembered about one cluster layout and one set of unavailable nodes."""

    def __init__(self, nodes: Inventory, away: Sequence[NodeState]) -> None:
        self.layout = nodes.layout
        self.unavailable_nodes = tuple(away)
        self.requests = RequestTable(nodes)
        self.allocations = AllocationCache(len(nodes.resources))
        """The allocations of the last cycle's running gangs."""
        self.reclaimable: RunningGangCache[ReclaimableReplicas | None] = RunningGangCache()
        self.is_unaffected: RunningGangCache[bool] = RunningGangCache()
        """Whether no replica of a running gang has to move or go."""
        self.requests_held: RunningGangCache[Sequence[tuple[NodeRequest, int]]] = RunningGangCache()
        """What each running gang requests of nodes, with the number of replicas that it has."""
        self.never_feasible: set[Hashable] = set()
        """Shapes that do not fit even the empty cluster."""
        self.feasible_when_empty: set[Hashable] = set()
        """Shapes that fit the empty cluster."""
        self.queue: list[QueueEntry] = []
        """The gangs that waited in the last cycle, in queue order."""
        self.entries_by_name: dict[str, QueueEntry] = {}
        """The same, by name."""
        self.candidates = CandidateTable()
        self.waiting_groups: WaitingGroups | None = None
        """The gangs of the queue in groups of equal ones; None until a policy needs them."""
        self._shapes: dict[Hashable, GangShape] = {}

    def shape_of(self, demands: Sequence[Demand], create: Callable[[], GangShape]) -> GangShape:
        """Return the shape of these demands; created if it is new."""
        key = tuple(demand.shape_key for demand in demands)
        shape = self._shapes.get(key)
        if shape is None:
            if len(self._shapes) >= _MAX_ENTRIES:
                self._shapes.clear()
            shape = self._shapes[key] = create()
        return shape


class Memory:
    """What one scheduler keeps from cycle to cycle. It makes cycles faster and changes no decision."""

    def __init__(self) -> None:
        self._cluster: ClusterMemory | None = None

    def of(self, nodes: Inventory, away: Sequence[NodeState]) -> ClusterMemory:
        """Return what is remembered about this cluster. It is forgotten when a node's capacity or topology changes,
        when nodes come, go, or become unavailable, and when too many different requests were made.
        """
        cluster = self._cluster
        if (
            cluster is None
            or cluster.layout is not nodes.layout
            or cluster.unavailable_nodes != tuple(away)
            or cluster.requests.was_cleared
        ):
            cluster = self._cluster = ClusterMemory(nodes, away)
        return cluster


Policy = Callable[[Snapshot, Memory], Sequence[Decision]]
"""A policy decides the same with any memory of its own earlier cycles; an empty one is only slower."""
