"""The working state of one scheduling cycle: free and reserved resources, and the decisions so far.

All policies are built on it; they differ in which gangs may go before which.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter

import numpy as np

from tarragon.base.gpu_constraints import closed
from tarragon.base.resources import Resources
from tarragon.job.model import Replica
from tarragon.job.places import vgpu_of
from tarragon.job.status import WaitReason
from tarragon.scheduling.api.decision import RESOURCES_RELEASING, Admit, Defer, Evict, GangDecision, Resize
from tarragon.scheduling.api.rules import bounded_timedelta
from tarragon.scheduling.api.snapshot import Demand, RunningGang, Snapshot, WaitingGang
from tarragon.scheduling.cycle.preemption_simulation import AllocationTable
from tarragon.scheduling.cycle.shares import QueueUsage
from tarragon.scheduling.cycle.shrink import ReclaimablePool
from tarragon.scheduling.cycle.victims import allocations_of, has_room_for_each
from tarragon.scheduling.explain import wait_messages
from tarragon.scheduling.placement.fit import Assignment, assign, is_feasible
from tarragon.scheduling.state.candidates import Candidate
from tarragon.scheduling.state.inventory import Allocation, Inventory, ScoreArray
from tarragon.scheduling.state.ledger import NodeLedger
from tarragon.scheduling.state.memory import GangShape, Memory, QueueEntry
from tarragon.scheduling.state.node_requests import Amounts, NodeRequest

MAX_REPRESENTATIVE = 512
"""So many of the gangs that wait say what is requested where GPUs are shared, beside all that run."""
_LONG_AGO = dt.datetime.min.replace(tzinfo=dt.UTC)


@dataclass(slots=True, eq=False)
class ShapeState:
    """What one cycle has found out about the gangs of one shape."""

    shape: GangShape
    minimum_demands: Sequence[Demand]
    """The demands at the gang's minimum size."""
    never_fits_reason: WaitReason | None
    """Why such a gang does not fit even the empty cluster; None if it does."""
    no_room_reason: WaitReason | None = None
    """Why there is no room for such a gang now; None if it was not tried or fits."""
    has_no_future_room: bool = False
    """Whether there is no room even after terminating pods have ended."""
    futile_preemption_priority: int | None = None
    """A priority up to which preemption is known not to help: the gangs below it together hold too little."""
    was_starving: bool | None = None
    """Set once such a gang, which may preempt others, has to wait whatever else is tried: whether it was starving. The
    gangs after it are no more urgent.
    """


class _Kinds(dict[GangShape, ShapeState]):
    """A dictionary that creates missing values. Nearly all of ten thousand look-ups per cycle are hits, which are
    fastest this way.
    """

    def __missing__(self, shape: GangShape) -> ShapeState:
        kind = self[shape] = ShapeState(shape, shape.minimum_demands, shape.never_fits_reason)
        return kind


class SchedulingCycle:
    """One scheduling cycle. `free` is what can be used now, less reservations; `future_free` adds what terminating pods
    release.
    """

    def __init__(self, snapshot: Snapshot, memory: Memory) -> None:
        self.snapshot = replace(snapshot, running=sorted(snapshot.running, key=attrgetter("name")))
        self.nodes = Inventory.of(snapshot.nodes)
        self.memory = memory.of(self.nodes, snapshot.unavailable_nodes)
        self.free = NodeLedger.of_free(self.nodes, self.memory)
        self.free.worth = self.memory.requests.worth_for(self._requests())
        self.future_free = self.free.with_releasing()
        self.usage = QueueUsage(snapshot)
        self.decisions: list[GangDecision] = []
        self.started_sizes: dict[str, int] = {}
        """The gangs that start in this cycle, with their number of replicas."""
        self.changed_gangs: set[str] = set()
        """The running gangs about which this cycle has decided something."""
        self._before_reservations: NodeLedger | None = None
        self._holders: AllocationTable | None = None
        self._admitted: ScoreArray | None = None
        self._index_of: dict[str, int] | None = None
        self._reclaimable: ReclaimablePool | None = None
        self.starving_if_queued_by = snapshot.now - bounded_timedelta(snapshot.rules.starvation_seconds)
        self.overdue_if_queued_by = snapshot.now - bounded_timedelta(snapshot.rules.overdue_seconds)
        self._empty_cluster: NodeLedger | None = None
        self._with_unavailable: NodeLedger | None = None
        self._is_releasing = bool(self.nodes.releasing.any())
        self.queue: Sequence[QueueEntry] | None = None
        """The waiting gangs by priority and queue time; see `queue_order.py`. None until they are needed."""
        self.shape_states = _Kinds()
        """The state of each shape. Look it up once per gang and pass it along."""
        self._without_room_soon: list[ShapeState] = []
        """Kinds without room in `future_free`, to be tried again once more is released."""
        self._quota_waits: dict[str, dict[ShapeState, WaitReason]] = {}

    def _requests(self) -> Iterable[tuple[NodeRequest, int]]:
        """Return what gangs request, which says how to place shares of GPUs: many of them are representative."""
        if self.memory.requests.worth_columns is None:
            return ()
        request_of = self.memory.requests.of
        waiting = self.snapshot.waiting[:MAX_REPRESENTATIVE]
        wanted = [(request_of(demand), demand.requested) for gang in waiting for demand in gang.demands]
        held = self.memory.requests_held.get_all(self.snapshot.running, self._requests_held)
        return chain(wanted, chain.from_iterable(held))

    def _requests_held(self, gang: RunningGang) -> Sequence[tuple[NodeRequest, int]]:
        counts = Counter(replica.type for replica in gang.nodes)
        return [(self.memory.requests.of(demand), counts[demand.type]) for demand in gang.demands]

    def candidate(self, gang: WaitingGang | RunningGang) -> Candidate:
        """Return the gang as a candidate for a size."""
        return self.memory.candidates.of(gang, self.memory.requests)

    def add(self, decision: GangDecision) -> None:
        self.decisions.append(decision)

    def new_entry(self, gang: WaitingGang) -> QueueEntry:
        """Create the cycle memory's record of a gang that did not wait in the last cycle."""
        return QueueEntry(gang, self.memory.shape_of(gang.demands, lambda: self._shape(gang)))

    def defer_unschedulable(self, standing: QueueEntry, kind: ShapeState) -> Defer | None:
        """Return why the gang cannot start now whatever goes before it: cluster size, unavailable nodes or quota."""
        if kind.never_fits_reason is not None:
            return standing.defer(kind.never_fits_reason)
        quota = self.usage.quota(standing.gang.queue)
        return self._over_quota(standing, kind, quota) if quota else None

    def is_starving(self, gang: WaitingGang) -> bool:
        """Whether the gang has waited so long that others shrink for it."""
        return gang.queued_at <= self.starving_if_queued_by

    def is_overdue(self, gang: WaitingGang) -> bool:
        """Whether the gang has waited so long that nothing may pass it for good."""
        return gang.queued_at <= self.overdue_if_queued_by

    def try_admit(self, gang: WaitingGang, kind: ShapeState) -> Admit | None:
        """Start the gang on free resources, as large as possible; None if there is too little."""
        if kind.no_room_reason is not None or is_known_to_lack(kind, self.free):
            return None
        demands = self.usage.clamp_to_quota(gang.queue, gang.demands)
        nodes = None if demands is None else assign(demands, self.free)
        if nodes is None:
            return None
        self.record_allocation(gang, nodes)
        self.started_sizes[gang.name] = len(nodes)
        return Admit(gang.name, nodes)

    def try_reserve_releasing(self, gang: WaitingGang, kind: ShapeState) -> Defer | None:
        """Reserve what terminating pods release if the gang can start on that; None if it is not enough."""
        is_possible = (
            self._is_releasing and not kind.has_no_future_room and not is_known_to_lack(kind, self.future_free)
        )
        nodes = assign(kind.minimum_demands, self.future_free) if is_possible else None
        if nodes is None:
            kind.has_no_future_room = True
            self._without_room_soon.append(kind)
            return None
        self._set_aside([_closed(each) for each in self.nodes.held_by(gang.demands, nodes)])
        self.usage.charge(gang, nodes)
        return Defer(gang.name, RESOURCES_RELEASING, wait_messages.RELEASING)

    def reserve(self, gang: WaitingGang, nodes: Assignment) -> None:
        """Reserve these nodes for the gang: what is free there and what becomes free."""
        parts = [_closed(each) for each in self.nodes.held_by(gang.demands, nodes)]
        self._set_aside(parts)
        self.future_free.reserve(parts)
        self.usage.charge(gang, nodes)

    def defer_for_resources(self, standing: QueueEntry, kind: ShapeState) -> Defer:
        """Return the wait of a gang that does not fit, because of too little room or because of reservations."""
        if kind.no_room_reason is None:
            unreserved = self._before_reservations
            if unreserved is not None and not is_known_to_lack(kind, unreserved) and _has_room(kind, unreserved):
                why = wait_messages.RESERVED_FOR_JOB_AHEAD
            elif unreserved is None and _has_room(kind, self.free):
                why = wait_messages.MEANT_FOR_OTHERS
            else:
                ledger = self.free if unreserved is None else unreserved
                why = wait_messages.insufficient_resources(kind.minimum_demands, kind.shape.minimum_resources, ledger)
            kind.no_room_reason = kind.shape.interned(why)
        return standing.defer(kind.no_room_reason)

    @property
    def allocations(self) -> AllocationTable:
        """What running gangs hold, by index in `snapshot.running`. Computed on first use."""
        if self._holders is None:
            self._holders = allocations_of(self.snapshot.running, self.nodes, self.memory)
        return self._holders

    @property
    def admission_times(self) -> ScoreArray:
        """The admission times of running gangs in seconds, by the same index. A gang without one counts as very old."""
        if self._admitted is None:
            moments = [(gang.admitted_at or _LONG_AGO).timestamp() for gang in self.snapshot.running]
            self._admitted = np.array(moments, np.float64)
        return self._admitted

    def without_changed(self, indexes: Amounts) -> Amounts:
        """Keep those of the indexes of running gangs about which nothing is decided."""
        if self._index_of is None:
            self._index_of = {gang.name: index for index, gang in enumerate(self.snapshot.running)}
        is_unchanged = np.ones(len(self._index_of), np.bool_)
        is_unchanged[[self._index_of[name] for name in self.changed_gangs]] = False
        return indexes[is_unchanged[indexes]]

    def reclaimable_pool(self) -> ReclaimablePool:
        """Return what running gangs could give back, as a copy that the caller may change."""
        if self._reclaimable is None:
            self._reclaimable = ReclaimablePool(self.snapshot.running, self.nodes, self.memory)
        return self._reclaimable.copy()

    def resize(self, gang: RunningGang, nodes: Mapping[Replica, str], reason: str) -> None:
        """Let the gang continue on these nodes. What it gives back becomes free once its pods have ended."""
        self.add(Resize(gang.name, nodes, reason))
        self.changed_gangs.add(gang.name)
        removed = {
            replica: node
            for replica, node in gang.nodes.items()
            if replica not in nodes or (nodes[replica] != node and replica not in gang.displaced)
        }
        if removed:
            self._release(gang, removed)

    def evict(self, gang: RunningGang, code: str, message: str) -> None:
        """Withdraw the gang's admission. What it holds becomes free once its pods have ended."""
        self.add(Evict(gang.name, code, message))
        self.changed_gangs.add(gang.name)
        self._release(gang, gang.nodes)

    def record_allocation(self, gang: WaitingGang | RunningGang, nodes: Mapping[Replica, str]) -> None:
        """Record that a gang has got free resources on these nodes."""
        parts = self.nodes.held_by(gang.demands, nodes)
        for ledger in filter(None, (self.future_free, self._before_reservations)):
            ledger.reserve(parts)
        self.usage.charge(gang, nodes)

    def record_move(self, gang: RunningGang, nodes: Mapping[Replica, str]) -> None:
        """Record that replicas which already count towards shares have got other nodes."""
        self.future_free.reserve(self.nodes.held_by(gang.demands, nodes))

    def _release(self, gang: RunningGang, nodes: Mapping[Replica, str]) -> None:
        self._is_releasing = True
        for kind in self._without_room_soon:
            kind.has_no_future_room, kind.was_starving = False, None
        self._without_room_soon.clear()
        self.usage.release(gang, nodes.keys() - gang.finished)
        self.future_free.release(self.nodes.held_by(gang.demands, nodes, gang.finished))

    def _set_aside(self, parts: Sequence[Allocation]) -> None:
        if self._before_reservations is None:
            self._before_reservations = self.free.copy()
        self.free.reserve(parts)

    def _over_quota(self, standing: QueueEntry, kind: ShapeState, quota: Resources) -> Defer | None:
        """Return a wait if the gang exceeds its quota.

        Only the first gang of a queue is told what the queue holds: that changes too often to update thousands of
        messages.
        """
        gang = standing.gang
        earlier = self._quota_waits.get(gang.queue, {})
        why = earlier.get(kind)
        if why is None:
            if self.usage.clamp_to_quota(gang.queue, gang.demands) is not None:
                return None
            least = kind.shape.minimum_resources
            if self.is_overdue(gang) and all(least.get(name, 0) <= limit for name, limit in quota.items()):
                self.usage.reserve(gang.queue, least)
            self._quota_waits[gang.queue] = {**earlier, kind: wait_messages.behind_in_queue(gang, quota)}
            held = self.usage.held(gang.queue)
            why = self._quota_waits[gang.queue][kind] if earlier else wait_messages.over_quota(gang, held, quota)
        return standing.defer(why)

    def _shape(self, gang: WaitingGang) -> GangShape:
        smallest = [replace(demand, requested=demand.minimum, maximum=0) for demand in gang.demands]
        requests = [(self.memory.requests.of(demand), demand.minimum) for demand in smallest]
        least = wait_messages.minimum_resources(smallest)
        return GangShape(smallest, requests, least, self._why_never(gang, smallest))

    def _why_never(self, gang: WaitingGang, smallest: Sequence[Demand]) -> WaitReason | None:
        if self._empty_cluster is None:
            self._empty_cluster = NodeLedger.of_capacity(self.nodes, self.memory)
        if is_feasible(smallest, self._empty_cluster):
            return None
        if self.snapshot.unavailable_nodes and is_feasible(smallest, self._with_all_nodes()):
            return wait_messages.nodes_unavailable(gang, self.snapshot)
        is_pressure_in_the_way = any(demand.pressured_nodes.reasons for demand in smallest)
        if is_pressure_in_the_way and is_feasible([_relieved(each) for each in smallest], self._with_all_nodes()):
            return wait_messages.nodes_under_pressure(gang, self.snapshot, self._empty_cluster)
        return wait_messages.blocked_by_affinity(gang) or wait_messages.never_fits(gang, self.snapshot)

    def _with_all_nodes(self) -> NodeLedger:
        """The empty cluster, with the nodes that are unavailable now."""
        if self._with_unavailable is None:
            self._with_unavailable = NodeLedger.of_capacity([*self.snapshot.nodes, *self.snapshot.unavailable_nodes])
        return self._with_unavailable


def is_known_to_lack(kind: ShapeState, ledger: NodeLedger) -> bool:
    """Whether it is already known that there is too little room: a quick check before the closer look of `assign`."""
    for request, count in kind.shape.node_requests:  # noqa: SIM110  # a generator would take as long as the check itself
        if ledger.is_known_to_lack(request, count):
            return True
    return False


def _relieved(demand: Demand) -> Demand:
    """The demand as it may be once no node is under pressure any more.

    A spread that honors taints (nodeTaintsPolicy) does not know yet of which domains these nodes are, and can't refuse
    them.
    """
    known = [
        each
        for each in demand.topology_constraints
        if each.in_one_domain or all(node in each.domain_of for node in demand.pressured_nodes.reasons)
    ]
    eligible = demand.eligible_nodes | demand.pressured_nodes.names
    return replace(demand, eligible_nodes=eligible, topology_constraints=tuple(known))


def _closed(part: Allocation) -> Allocation:
    """What has to be kept from others until the replicas are there: see `gpu_constraints.closed`."""
    place, amounts, times = part
    number = vgpu_of(place)
    return part if number is None else (place, closed(amounts, number), times)


def _has_room(kind: ShapeState, ledger: NodeLedger) -> bool:
    """Whether the gang fits at its minimum size: first the quick check whether each demand by itself does."""
    return has_room_for_each(kind.minimum_demands, ledger) and is_feasible(kind.minimum_demands, ledger)
