"""The scheduler of NTHU-LSALAB/DRAGON 0.9 (`pkg/controller.v1/DRAGON/scheduling`), defects included.

A head of the queue that waits for 30 seconds and can't be satisfied stops all starts and all growth. Nodes are tried in
random order. One job starts in a call, on the nodes as they were before others were shrunk. Growth gives all to the
job that runs longest, and to each up to its maximum on every node again, so that jobs exceed it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

from tarragon.simulator.baselines.packing import take
from tarragon.simulator.baselines.queues import waiting
from tarragon.simulator.baselines.stateless import Stateless
from tarragon.simulator.engine import ActiveJob, ClusterView, Placement, Plan

RESYNC = 15.0
HEAD_WAITS = 30.0
"""How long the head waits before others are shrunk for it."""
GROWTH_PAUSE = 60.0
"""How long nothing has happened before jobs grow."""


class DragonAsCoded(Stateless):
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._acted_at = 0.0

    def decide(self, view: ClusterView) -> Plan:
        running = sorted(
            (active for active in view.jobs.values() if active.placement), key=lambda active: active.admitted_at
        )
        sizes: dict[str, Placement] = {active.job.name: active.placement for active in running}
        head = next(waiting(view), None)
        before = dict(view.free)
        is_blocked = False
        if head is not None and view.now - head.job.submitted_at >= HEAD_WAITS:
            shrunk = self._shrunk_for(head, running, view.free)
            is_blocked = shrunk is None
            sizes.update(shrunk or {})
            self._acted_at = view.now
        if not is_blocked:
            sizes.update(self._started(view, before))
        if view.now - self._acted_at >= GROWTH_PAUSE:
            self._grow(running, sizes, before)
            self._acted_at = view.now
        changed = {name: nodes for name, nodes in sizes.items() if dict(nodes) != dict(view.jobs[name].placement)}
        return Plan(changed, view.now + RESYNC)

    def _shrunk_for(
        self, head: ActiveJob, running: list[ActiveJob], free: Mapping[str, int]
    ) -> dict[str, Placement] | None:
        """Take replicas from the jobs that run longest until the head fits at its minimum; None if it never does."""
        left = dict(free)
        shrunk: dict[str, dict[str, int]] = {}
        for active, node in self._removable(running):
            if _has_room(head, head.job.minimum, left):
                return dict(shrunk)
            nodes = shrunk.setdefault(active.job.name, dict(active.placement))
            nodes[node] -= 1
            left[node] += active.job.devices
        return dict(shrunk) if _has_room(head, head.job.minimum, left) else None

    def _removable(self, running: list[ActiveJob]) -> Iterator[tuple[ActiveJob, str]]:
        for active in running:
            spare = active.size - active.job.minimum
            replicas = [node for node in self._shuffled(active.placement) for _ in range(active.placement[node])]
            yield from ((active, node) for node in replicas[:spare])

    def _started(self, view: ClusterView, free: dict[str, int]) -> dict[str, Placement]:
        """Start the first job of which the minimum fits, with as many replicas as fit."""
        for active in waiting(view):
            devices = active.job.devices
            rooms = {node: count // devices for node, count in free.items()}
            size = min(active.job.requested, sum(rooms.values()))
            if size >= active.job.minimum:
                placement = self._placed(size, rooms)
                take(free, placement, devices)
                return {active.job.name: placement}
        return {}

    def _placed(self, size: int, free: Mapping[str, int]) -> Placement:
        """Choose the first node that holds all, else the one that holds most and others in random order."""
        nodes = self._shuffled(free)
        whole = next((node for node in nodes if free[node] >= size), None)
        if whole is not None:
            return {whole: size}
        largest = max(nodes, key=lambda node: free[node])
        placement: dict[str, int] = {}
        for node in (largest, *self._shuffled(free)):
            if node not in placement and free[node] and size:
                placement[node] = min(size, free[node])
                size -= placement[node]
        return placement

    def _grow(self, running: list[ActiveJob], sizes: dict[str, Placement], free: dict[str, int]) -> None:
        grown = {active.job.name: active.job.maximum - sum(sizes[active.job.name].values()) for active in running}
        for node in self._shuffled(free):
            for active in running:
                nodes = sizes[active.job.name]
                count = min(free[node] // active.job.devices, grown[active.job.name])
                if count > 0:
                    sizes[active.job.name] = {**nodes, node: nodes.get(node, 0) + count}
                    free[node] -= count * active.job.devices

    def _shuffled(self, nodes: Mapping[str, int]) -> list[str]:
        """Return the nodes in the order of a Go map: any."""
        return self._chance.sample(sorted(nodes), len(nodes))


def _has_room(active: ActiveJob, size: int, free: Mapping[str, int]) -> bool:
    return sum(count // active.job.devices for count in free.values()) >= size
