"""Grows running gangs on idle resources, one replica at a time: the gang with the smallest part of its
maximum first.
"""

from __future__ import annotations

import datetime as dt
import heapq
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tarragon.job.model import Replica
from tarragon.scheduling.actions.running_gangs import is_scaled_up
from tarragon.scheduling.api.decision import ResizeReason
from tarragon.scheduling.api.gpu_shares import claims_of
from tarragon.scheduling.api.rules import bounded_timedelta
from tarragon.scheduling.api.snapshot import Demand, RunningGang, WaitingGang
from tarragon.scheduling.cycle.scheduling_cycle import SchedulingCycle
from tarragon.scheduling.placement.fit import assign_more
from tarragon.scheduling.state.ledger import NodeLedger
from tarragon.scheduling.state.node_requests import NodeRequest

MAX_REPLICAS_PER_CYCLE = 512
"""The number of replicas that one cycle adds. A cluster that stays idle gets the rest in later cycles."""
PATIENCE = 2
"""For how many times `idle_seconds` other gangs may keep a gang from growing. Without a bound, a gang on 64 GPUs took
eight times as long because gangs of one GPU came every 50 s.
"""
_MIN_RESTART_GROWTH = 1.25

MissingReplica = tuple[Replica, Demand]


def grow_elastic_gangs(cycle: SchedulingCycle, young: Sequence[WaitingGang]) -> dt.datetime | None:
    """Grow running gangs, and return when to try again, if that is known. What `young` gangs could use is left to them:
    they wait, but are not starving yet.

    A gang whose requested size has risen gets it at once. Beyond that, gangs grow up to their maximum once nothing has
    been started or resized for a while, and each once it has had its size for a while. On a busy cluster, where small
    gangs come all the time, a gang that has had its size for `PATIENCE` times as long grows, too.
    """
    growth = _Growth(cycle, _left_over(cycle, young))
    idle_at = _last_action(cycle) + bounded_timedelta(cycle.snapshot.rules.idle_seconds)
    later: list[tuple[dt.datetime, RunningGang]] = []
    for gang in cycle.snapshot.running:
        if not gang.is_elastic or gang.name in cycle.changed_gangs:
            continue
        if is_scaled_up(gang):
            growth.add(gang, list(_lacking(gang, beyond=False)), ResizeReason.REQUESTED)
        elif len(gang.nodes) < sum(_most(demand) for demand in gang.demands):
            at = max(min(idle_at, _patient_until(gang, cycle)), _cooled_down_at(gang, cycle))
            if at > cycle.snapshot.now:
                later.append((at, gang))
            elif growth.has_room_for(gang):
                growth.add(gang, _lacking_beyond_request(gang), ResizeReason.NODES_IDLE)
    growth.fill()
    if growth.is_left and _some_began_small(cycle):
        return cycle.snapshot.now + bounded_timedelta(cycle.snapshot.rules.idle_seconds)
    return growth.next_of(later)


def _some_began_small(cycle: SchedulingCycle) -> bool:
    """Whether a gang that starts in this cycle has less than its maximum."""
    began = cycle.started_sizes
    waiting = (gang for gang in cycle.snapshot.waiting if gang.name in began) if began else ()
    return any(began[gang.name] < sum(_most(demand) for demand in gang.demands) for gang in waiting)


def _lacking(gang: RunningGang, *, beyond: bool) -> Iterator[MissingReplica]:
    """Yield the replicas up to the requested size, or up to the maximum if `beyond`, lowest index first."""
    counts = Counter(replica.type for replica in gang.nodes)
    for demand in gang.demands:
        limit = _most(demand) if beyond else demand.requested
        candidates = (Replica(demand.type, index) for index in range(limit))
        missing = [replica for replica in candidates if replica not in gang.nodes]
        yield from ((replica, demand) for replica in missing[: max(0, limit - counts[demand.type])])


def _lacking_beyond_request(gang: RunningGang) -> Sequence[MissingReplica]:
    """The replicas up to the maximum. Nobody requested them, so a gang restarts only if it becomes much larger."""
    missing = list(_lacking(gang, beyond=True))
    is_much_larger = len(gang.nodes) + len(missing) >= _MIN_RESTART_GROWTH * len(gang.nodes)
    return missing if is_much_larger or not gang.resizes_by_restart else ()


def _most(demand: Demand) -> int:
    return max(demand.maximum, demand.requested)


def _claims(gang: RunningGang) -> int:
    return max((claims_of(demand.share) for demand in gang.demands), default=0)


def _cooled_down_at(gang: RunningGang, cycle: SchedulingCycle) -> dt.datetime:
    cool_down = bounded_timedelta(cycle.snapshot.rules.cool_down_seconds)
    if gang.resized_at is None or gang.resized_at > cycle.snapshot.now + cool_down:
        return cycle.snapshot.now  # A resize in the future: a clock was wrong.
    return gang.resized_at + cool_down


def _patient_until(gang: RunningGang, cycle: SchedulingCycle) -> dt.datetime:
    """Return until when a gang keeps its size because others are started or resized."""
    moments = [at for at in (gang.admitted_at, gang.resized_at) if at is not None and at <= cycle.snapshot.now]
    if not moments:
        return cycle.snapshot.now
    return max(moments) + PATIENCE * bounded_timedelta(cycle.snapshot.rules.idle_seconds)


def _last_action(cycle: SchedulingCycle) -> dt.datetime:
    """The time of the last start or resize; this cycle's decisions count as well."""
    if cycle.changed_gangs or cycle.started_sizes:
        return cycle.snapshot.now
    latest = cycle.snapshot.now + bounded_timedelta(cycle.snapshot.rules.idle_seconds)
    moments = (at for gang in cycle.snapshot.running for at in (gang.admitted_at, gang.resized_at) if at is not None)
    return max((at for at in moments if at <= latest), default=dt.datetime.min.replace(tzinfo=dt.UTC))


def _left_over(cycle: SchedulingCycle, young: Iterable[WaitingGang]) -> NodeLedger:
    """Return what is free without the nodes on which a young gang could have a replica."""
    table = cycle.free.table.copy(order="K")
    requests = {cycle.memory.requests.of(demand) for gang in young for demand in gang.demands if demand.minimum}
    for request in requests:
        if request.columns and cycle.free.has_room(request, 1):
            table[request.room(cycle.free.table, request.mask) > 0] = 0
    return NodeLedger(cycle.nodes, table, cycle.memory.requests)


class _Growth:
    def __init__(self, cycle: SchedulingCycle, ledger: NodeLedger) -> None:
        self._cycle = cycle
        self._ledger = ledger
        self.is_left = bool((ledger.table > 0).any())
        self._heap: list[tuple[float, str]] = []
        self._gangs: dict[str, tuple[RunningGang, dict[Replica, str], deque[MissingReplica], str]] = {}

    def has_room_for(self, gang: RunningGang) -> bool:
        """Whether any node has room for a replica that the gang does not have. On a full cluster, few gangs need a
        closer look.
        """
        counts, ledger = Counter(replica.type for replica in gang.nodes), self._ledger
        return any(
            counts[demand.type] < _most(demand) and ledger.most_on_one_node(ledger.requests.of(demand)) > 0
            for demand in gang.demands
        )

    def add(self, gang: RunningGang, missing: Sequence[MissingReplica], reason: str) -> None:
        """Queue a gang for growth. A gang that restarts to grow gets all or nothing."""
        if not missing or not self.is_left:
            return
        self._gangs[gang.name] = gang, dict(gang.nodes), deque(missing), reason
        heapq.heappush(self._heap, (self._fraction(gang, gang.nodes), gang.name))

    def fill(self) -> None:
        """Add replicas until nothing is left or no gang needs more, then resize the gangs."""
        left = MAX_REPLICAS_PER_CYCLE
        while self._heap and left > 0:
            _, name = heapq.heappop(self._heap)
            gang, nodes, missing, _ = self._gangs[name]
            if gang.resizes_by_restart:
                left -= self._add_all(gang, nodes, list(missing))
            elif self._add_one(gang, nodes, missing.popleft()):
                left -= 1
                if missing:
                    heapq.heappush(self._heap, (self._fraction(gang, nodes), name))
        # Who has joined a replica on its GPU can only do so after it.
        for gang, nodes, _, reason in sorted(self._gangs.values(), key=lambda growing: -_claims(growing[0])):
            if len(nodes) > len(gang.nodes):
                self._cycle.resize(gang, nodes, reason)

    def next_of(self, later: Sequence[tuple[dt.datetime, RunningGang]]) -> dt.datetime | None:
        """The first moment at which one of these gangs could have more."""
        if not later or not self.is_left:
            return None
        has_room: dict[NodeRequest, bool] = {}
        for at, gang in sorted(later, key=lambda moment: (moment[0], moment[1].name)):
            counts = Counter(replica.type for replica in gang.nodes)
            for demand in gang.demands:
                request = self._cycle.memory.requests.of(demand)
                if counts[demand.type] < _most(demand) and request not in has_room:
                    has_room[request] = bool(self._ledger.room(request).any())
                if counts[demand.type] < _most(demand) and has_room[request]:
                    return at
        return None

    def _fraction(self, gang: RunningGang, nodes: Mapping[Replica, str]) -> float:
        """What part of its maximum the gang has. Replica types that cannot grow do not count."""
        elastic = {demand.type: _most(demand) for demand in gang.demands if _most(demand) > demand.minimum}
        return sum(replica.type in elastic for replica in nodes) / max(1, sum(elastic.values()))

    def _add_one(self, gang: RunningGang, nodes: dict[Replica, str], missing: MissingReplica) -> bool:
        request = self._ledger.requests.of(missing[1])
        if not self._ledger.most_on_one_node(request) or not self._cycle.usage.within_quota(gang.queue, [missing]):
            return False
        added = assign_more([missing], self._ledger, near=nodes, anchors=gang.anchor_types)
        self._cycle.record_allocation(gang, added)
        nodes.update(added)
        return bool(added)

    def _add_all(self, gang: RunningGang, nodes: dict[Replica, str], missing: list[MissingReplica]) -> int:
        if len(self._cycle.usage.within_quota(gang.queue, missing)) < len(missing):
            return 0
        added = assign_more(missing, self._ledger, near=nodes, anchors=gang.anchor_types)
        if len(added) < len(missing):
            self._ledger.release_all(added, gang.demands)
            return 0
        self._cycle.record_allocation(gang, added)
        nodes.update(added)
        return len(added)
