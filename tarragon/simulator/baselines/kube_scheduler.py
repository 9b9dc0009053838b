"""kube-scheduler without gangs: pod by pod, each on the node with the most free devices (LeastAllocated).

Half gangs hold devices and do nothing. That is a deadlock when they hold all of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

from tarragon.simulator.baselines.stateless import Stateless
from tarragon.simulator.engine import ActiveJob, ClusterView, Plan

PodOrder = Callable[[Sequence[ActiveJob]], Iterator[ActiveJob]]
"""The jobs of the pods that wait, pod by pod."""


class KubeScheduler(Stateless):
    def __init__(self, order: PodOrder) -> None:
        self._order = order

    def decide(self, view: ClusterView) -> Plan:
        placements: dict[str, dict[str, int]] = {}
        free = dict(view.free)
        left = sum(free.values())
        incomplete = [active for active in view.jobs.values() if active.size < active.job.requested]
        for active in self._order(incomplete) if left else ():
            node = min(free, key=lambda name: (-free[name], name))
            devices = active.job.devices
            if free[node] < devices:
                continue
            placement = placements.setdefault(active.job.name, dict(active.placement))
            placement[node] = placement.get(node, 0) + 1
            free[node] -= devices
            left -= devices
            if not left:
                break
        return Plan(placements)


def first_in_first_out(jobs: Sequence[ActiveJob]) -> Iterator[ActiveJob]:
    """The best case: all pods of a job come before those of the next one."""
    return (active for active in jobs for _ in range(active.job.requested - active.size))


class Mixed:
    """Pods of different jobs come in any order: controllers create them in parallel, and each pod that did not fit
    backs off for 1 to 10 seconds.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def __call__(self, jobs: Sequence[ActiveJob]) -> Iterator[ActiveJob]:
        pods = list(first_in_first_out(jobs))
        self._chance.shuffle(pods)
        return iter(pods)
