"""What the gangs of each namespace hold, beside what they may hold and what would be their fair share."""

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
    """Taken and given back while a policy thinks, as a ledger of the nodes is."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._queues = snapshot.rules.queues
        nodes = Inventory.of(snapshot.nodes)
        self._there = nodes.total(nodes.capacity) if snapshot.rules.is_fair else {}
        self._held: dict[str, dict[str, int]] = {}
        self._share: dict[str, float] = {}
        self._kept: dict[str, Resources] = {}
        self.limited = {name for name, queue in self._queues.items() if queue.quota}
        self.matter = snapshot.rules.is_fair or bool(self.limited)
        """Where nobody asks, nothing is summed up."""
        for gang in (*snapshot.running, *snapshot.beside) if self.matter else ():
            self.take(gang, gang.nodes.keys() - gang.finished)

    def held(self, queue: str) -> Resources:
        """By the gangs of one namespace, in thousandths."""
        return self._held.get(queue, {})

    def quota(self, queue: str) -> Resources:
        """Empty where nothing is limited."""
        return self._queues.get(queue, _DEFAULT).quota

    def share(self, queue: str) -> float:
        """Of the resource that it holds most of: what part of the cluster's, over its weight."""
        known = self._share.get(queue)
        if known is None:
            held = self._held.get(queue, {})
            parts = [held.get(name, 0) / amount for name, amount in self._there.items() if amount > 0 and name != PODS]
            known = self._share[queue] = max(parts, default=0.0) / self._queues.get(queue, _DEFAULT).weight
        return known

    def take(self, gang: Gang | RunningGang, replicas: Iterable[Replica]) -> None:
        """From now on it holds these, too."""
        self._change(gang, replicas, 1)

    def give(self, gang: Gang | RunningGang, replicas: Iterable[Replica]) -> None:
        """It does not hold these any more."""
        self._change(gang, replicas, -1)

    def keep(self, queue: str, amounts: Resources) -> None:
        """What becomes free of its quota is for somebody who goes before all that ask from now on: one at a time."""
        self._kept.setdefault(queue, amounts)

    def allowed(self, queue: str, demands: Sequence[Demand]) -> Sequence[Demand] | None:
        """The same with smaller wishes where the quota wants it; None when even the smallest form is too much."""
        quota = self.quota(queue)
        if not quota:
            return demands
        left = self._left(queue)
        for demand in demands:
            left = _less(left, demand.each, demand.minimum)
        if any(left[name] < 0 and demand.minimum * demand.each.get(name, 0) for demand in demands for name in left):
            return None
        made = []
        for demand in demands:
            more = _times(demand.each, left, demand.wish - demand.minimum)
            left = _less(left, demand.each, more)
            made.append(replace(demand, wish=demand.minimum + more))
        return made

    def permitted(self, queue: str, more: Sequence[tuple[Replica, Demand]]) -> list[tuple[Replica, Demand]]:
        """Of replicas that a gang would like besides, the first ones, as many as the quota lets it have."""
        left = self._left(queue)
        permitted, full = [], set[ReplicaType]()
        for replica, demand in more:
            if demand.type in full or _times(demand.each, left, 1) < 1:
                full.add(demand.type)
                continue
            left = _less(left, demand.each, 1)
            permitted.append((replica, demand))
        return permitted

    def _left(self, queue: str) -> Resources:
        """Of what its quota limits; below zero where it holds, or is to get, more than that."""
        held, kept = self.held(queue), self._kept.get(queue, {})
        return {name: limit - held.get(name, 0) - kept.get(name, 0) for name, limit in self.quota(queue).items()}

    def _change(self, gang: Gang | RunningGang, replicas: Iterable[Replica], sign: int) -> None:
        if not self.matter:
            return
        self._share.pop(gang.queue, None)
        numbers = Counter(replica.type for replica in replicas)
        held = self._held.setdefault(gang.queue, {})
        for demand in gang.demands:
            for name, amount in demand.each.items():
                held[name] = held.get(name, 0) + sign * amount * numbers[demand.type]


def _less(left: Mapping[str, int], each: Resources, number: int) -> dict[str, int]:
    return {name: amount - number * each.get(name, 0) for name, amount in left.items()}


def _times(each: Resources, left: Resources, most: int) -> int:
    """How often `each` goes into what is left, at most so often."""
    return min([most, *(max(0, left[name]) // each[name] for name in left if each.get(name, 0) > 0)])
