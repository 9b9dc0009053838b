"""Rigid gangs that start in the order of their submission and are never stopped."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tarragon.simulator.baselines.packing import packed, take
from tarragon.simulator.baselines.stateless import Stateless
from tarragon.simulator.engine import ActiveJob, ClusterView, Placement, Plan


class StrictFifo(Stateless):
    """The first gang that does not fit blocks all that come after it."""

    def decide(self, view: ClusterView) -> Plan:
        placements: dict[str, Placement] = {}
        free = dict(view.free)
        for active in waiting(view):
            placement = packed(active.job.requested, free, active.job.devices)
            if placement is None:
                break
            placements[active.job.name] = placement
            take(free, placement, active.job.devices)
        return Plan(placements)


class PlainBackfill(Stateless):
    """Whatever fits starts. Nothing is reserved, so a stream of small gangs may pass a large one for long."""

    def decide(self, view: ClusterView) -> Plan:
        placements: dict[str, Placement] = {}
        free = dict(view.free)
        left = sum(free.values())
        for active in waiting(view):
            size, devices = active.job.requested, active.job.devices
            if size * devices <= left and (placement := packed(size, free, devices)):
                placements[active.job.name] = placement
                take(free, placement, devices)
                left -= size * devices
        return Plan(placements)


class Easy(Stateless):
    """EASY backfilling (Lifka 1995): a gang may pass the first that waits only if it does not delay that one. The true
    run times are known here; on a cluster users estimate them.
    """

    def decide(self, view: ClusterView) -> Plan:
        placements: dict[str, Placement] = {}
        free = dict(view.free)
        running = [active for active in view.jobs.values() if active.placement]
        ends = [(active.ends_at(view.now), active.size * active.job.devices) for active in running]
        head_starts, spare = math.inf, 0
        for active in waiting(view):
            size = active.job.requested * active.job.devices
            placement = packed(active.job.requested, free, active.job.devices)
            if placement is None and head_starts == math.inf:
                head_starts, spare = _reservation(size, sum(free.values()), ends)
                continue
            end = view.now + _run_time(active, placement) if placement else math.inf
            if placement is None or (end > head_starts and size > spare):
                continue
            spare -= size if end > head_starts else 0
            placements[active.job.name] = placement
            take(free, placement, active.job.devices)
            ends.append((end, size))
        return Plan(placements)


def waiting(view: ClusterView) -> Iterator[ActiveJob]:
    return (active for active in view.jobs.values() if not active.placement)


def _run_time(active: ActiveJob, placement: Placement) -> float:
    return active.remaining / active.job.speed.at(len(placement), sum(placement.values()) * active.job.devices)


def _reservation(size: int, free: int, ends: Sequence[tuple[float, int]]) -> tuple[float, int]:
    """Return when so many devices are free, and how many more are free then."""
    for end, released in sorted(ends):
        free += released
        if free >= size:
            return end, free - size
    return math.inf, 0
