"""What the gangs of each namespace hold, compared with its quota and its fair share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tarragon.base.resources import PODS, Resources
from tarragon.job.model import Replica, ReplicaType
from tarragon.scheduling.api.rules import Queue
from tarragon.scheduling.api.snapshot import Demand, Gang, RunningGang, Snapshot
from tarragon.scheduling.state.inventory import Inventory

_DEFAULT = Queue()


class Shares:
    """The resources that each queue holds, updated as a policy decides (as a `Ledger` is for nodes)."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._queues = snapshot.rules.queues
        nodes = Inventory.of(snapshot.nodes)
        self._total = nodes.total(nodes.capacity) if snapshot.rules.is_fair else {}
        self._held: dict[str, dict[str, int]] = {}
        self._share: dict[str, float] = {}
        self._reserved: dict[str, Resources] = {}
        self.limited = {name for name, queue in self._queues.items() if queue.quota}
        self.matter = snapshot.rules.is_fair or bool(self.limited)
        """Whether anything depends on shares. If not, nothing is summed up."""
        for gang in (*snapshot.running, *snapshot.beside) if self.matter else ():
            self.take(gang, gang.nodes.keys() - gang.finished)

    def held(self, queue: str) -> Resources:
        """Return what the queue's gangs hold, in thousandths."""
        return self._held.get(queue, {})

    def quota(self, queue: str) -> Resources:
        """Return the queue's quota; empty if nothing is limited."""
        return self._queues.get(queue, _DEFAULT).quota

    def share(self, queue: str) -> float:
        """Return the queue's dominant share: of the resource that it holds most of, its part of the cluster's, over its
        weight.
        """
        share = self._share.get(queue)
        if share is None:
            held = self._held.get(queue, {})
            shares = [held.get(name, 0) / amount for name, amount in self._total.items() if amount > 0 and name != PODS]
            share = self._share[queue] = max(shares, default=0.0) / self._queues.get(queue, _DEFAULT).weight
        return share

    def take(self, gang: Gang | RunningGang, replicas: Iterable[Replica]) -> None:
        """Add these replicas to what the gang's queue holds."""
        self._change(gang, replicas, 1)

    def give(self, gang: Gang | RunningGang, replicas: Iterable[Replica]) -> None:
        """Subtract these replicas from what the gang's queue holds."""
        self._change(gang, replicas, -1)

    def keep(self, queue: str, amounts: Resources) -> None:
        """Reserve this much of the queue's quota for a gang ahead of all later ones; only one gang per
        queue at a time.
        """
        self._reserved.setdefault(queue, amounts)

    def allowed(self, queue: str, demands: Sequence[Demand]) -> Sequence[Demand] | None:
        """Return the demands with `wish` lowered to what the quota permits; None if even the minimum exceeds it."""
        quota = self.quota(queue)
        if not quota:
            return demands
        left = self._remaining(queue)
        for demand in demands:
            left = _less(left, demand.each, demand.minimum)
        if any(left[name] < 0 and demand.minimum * demand.each.get(name, 0) for demand in demands for name in left):
            return None
        allowed = []
        for demand in demands:
            more = _times(demand.each, left, demand.wish - demand.minimum)
            left = _less(left, demand.each, more)
            allowed.append(replace(demand, wish=demand.minimum + more))
        return allowed

    def permitted(self, queue: str, more: Sequence[tuple[Replica, Demand]]) -> list[tuple[Replica, Demand]]:
        """Return as many of the additional replicas as the quota permits, in order."""
        left = self._remaining(queue)
        permitted, exhausted = [], set[ReplicaType]()
        for replica, demand in more:
            if demand.type in exhausted or _times(demand.each, left, 1) < 1:
                exhausted.add(demand.type)
                continue
            left = _less(left, demand.each, 1)
            permitted.append((replica, demand))
        return permitted

    def _remaining(self, queue: str) -> Resources:
        """Return what is left of the quota; negative where the queue holds, or has reserved, more than that."""
        held, reserved = self.held(queue), self._reserved.get(queue, {})
        return {name: limit - held.get(name, 0) - reserved.get(name, 0) for name, limit in self.quota(queue).items()}

    def _change(self, gang: Gang | RunningGang, replicas: Iterable[Replica], sign: int) -> None:
        if not self.matter:
            return
        self._share.pop(gang.queue, None)
        counts = Counter(replica.type for replica in replicas)
        held = self._held.setdefault(gang.queue, {})
        for demand in gang.demands:
            for name, amount in demand.each.items():
                held[name] = held.get(name, 0) + sign * amount * counts[demand.type]


def _less(left: Mapping[str, int], each: Resources, count: int) -> dict[str, int]:
    return {name: amount - count * each.get(name, 0) for name, amount in left.items()}


def _times(each: Resources, left: Resources, most: int) -> int:
    """Return how many times `each` fits into what is left, up to `most`."""
    return min([most, *(max(0, left[name]) // each[name] for name in left if each.get(name, 0) > 0)])
