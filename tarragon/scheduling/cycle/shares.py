"""What the gangs of each namespace hold, compared with its quota and its fair share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tarragon.base.resources import PODS, Resources
from tarragon.job.model import Replica, ReplicaType
from tarragon.scheduling.api.rules import QueueRules
from tarragon.scheduling.api.snapshot import Demand, RunningGang, Snapshot, WaitingGang
from tarragon.scheduling.state.inventory import Inventory

_DEFAULT = QueueRules()


class QueueUsage:
    """The resources that each queue holds, updated as a policy decides (as a `NodeLedger` is for nodes)."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._queues = snapshot.rules.queues
        nodes = Inventory.of(snapshot.nodes)
        self._total = nodes.total(nodes.capacity) if snapshot.rules.is_fair_share else {}
        self._held: dict[str, dict[str, int]] = {}
        self._share: dict[str, float] = {}
        self._reserved: dict[str, Resources] = {}
        self.queues_with_quota = {name for name, queue in self._queues.items() if queue.quota}
        self.is_tracked = snapshot.rules.is_fair_share or bool(self.queues_with_quota)
        """Whether anything depends on shares. If not, nothing is summed up."""
        for gang in (*snapshot.running, *snapshot.unchangeable) if self.is_tracked else ():
            self.charge(gang, gang.nodes.keys() - gang.finished)

    def held(self, queue: str) -> Resources:
        """Return what the queue's gangs hold, in thousandths."""
        return self._held.get(queue, {})

    def quota(self, queue: str) -> Resources:
        """Return the queue's quota; empty if nothing is limited."""
        return self._queues.get(queue, _DEFAULT).quota

    def dominant_share(self, queue: str) -> float:
        """Return the queue's dominant share: of the resource that it holds most of, its part of the cluster's, over its
        weight.
        """
        share = self._share.get(queue)
        if share is None:
            held = self._held.get(queue, {})
            shares = [held.get(name, 0) / amount for name, amount in self._total.items() if amount > 0 and name != PODS]
            share = self._share[queue] = max(shares, default=0.0) / self._queues.get(queue, _DEFAULT).weight
        return share

    def charge(self, gang: WaitingGang | RunningGang, replicas: Iterable[Replica]) -> None:
        """Add these replicas to what the gang's queue holds."""
        self._change(gang, replicas, 1)

    def release(self, gang: WaitingGang | RunningGang, replicas: Iterable[Replica]) -> None:
        """Subtract these replicas from what the gang's queue holds."""
        self._change(gang, replicas, -1)

    def reserve(self, queue: str, amounts: Resources) -> None:
        """Reserve this much of the queue's quota for a gang ahead of all later ones; only one gang per
        queue at a time.
        """
        self._reserved.setdefault(queue, amounts)

    def clamp_to_quota(self, queue: str, demands: Sequence[Demand]) -> Sequence[Demand] | None:
        """The demands with `requested` lowered to what the quota permits; None if even the minimum exceeds it."""
        quota = self.quota(queue)
        if not quota:
            return demands
        left = self._remaining(queue)
        for demand in demands:
            left = _less(left, demand.resources, demand.minimum)
        if any(
            left[name] < 0 and demand.minimum * demand.resources.get(name, 0) for demand in demands for name in left
        ):
            return None
        allowed = []
        for demand in demands:
            more = _times(demand.resources, left, demand.requested - demand.minimum)
            left = _less(left, demand.resources, more)
            allowed.append(replace(demand, requested=demand.minimum + more))
        return allowed

    def within_quota(self, queue: str, more: Sequence[tuple[Replica, Demand]]) -> list[tuple[Replica, Demand]]:
        """Return as many of the additional replicas as the quota permits, in order."""
        left = self._remaining(queue)
        permitted, exhausted = [], set[ReplicaType]()
        for replica, demand in more:
            if demand.type in exhausted or _times(demand.resources, left, 1) < 1:
                exhausted.add(demand.type)
                continue
            left = _less(left, demand.resources, 1)
            permitted.append((replica, demand))
        return permitted

    def _remaining(self, queue: str) -> Resources:
        """Return what is left of the quota; negative where the queue holds, or has reserved, more than that."""
        held, reserved = self.held(queue), self._reserved.get(queue, {})
        return {name: limit - held.get(name, 0) - reserved.get(name, 0) for name, limit in self.quota(queue).items()}

    def _change(self, gang: WaitingGang | RunningGang, replicas: Iterable[Replica], sign: int) -> None:
        if not self.is_tracked:
            return
        self._share.pop(gang.queue, None)
        counts = Counter(replica.type for replica in replicas)
        held = self._held.setdefault(gang.queue, {})
        for demand in gang.demands:
            for name, amount in demand.resources.items():
                held[name] = held.get(name, 0) + sign * amount * counts[demand.type]


def _less(left: Mapping[str, int], each: Resources, count: int) -> dict[str, int]:
    return {name: amount - count * each.get(name, 0) for name, amount in left.items()}


def _times(each: Resources, left: Resources, most: int) -> int:
    """Return how many times `each` fits into what is left, up to `most`."""
    return min([most, *(max(0, left[name]) // each[name] for name in left if each.get(name, 0) > 0)])
