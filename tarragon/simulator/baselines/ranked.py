"""Rigid gangs by rank: those of the best rank run, the others are stopped."""

from __future__ import annotations

from collections.abc import Callable

from tarragon.simulator.baselines.packing import give_back, packed, take
from tarragon.simulator.baselines.stateless import Stateless
from tarragon.simulator.engine import ActiveJob, ClusterView, Placement, Plan

Rank = Callable[[ActiveJob, float], tuple[float, float]]
"""The rank of a job at a moment; the lowest is first."""

TIRESIAS_THRESHOLD = 16 * 3600.0
"""The device seconds after which Tiresias moves a job to its second queue."""


class Ranked(Stateless):
    def __init__(self, rank: Rank) -> None:
        self._rank = rank

    def decide(self, view: ClusterView) -> Plan:
        chosen = self._chosen(view)
        stopped = [active for active in view.jobs.values() if active.placement and active.job.name not in chosen]
        placements: dict[str, Placement] = {active.job.name: {} for active in stopped}
        free = dict(view.free)
        for active in stopped:
            give_back(free, active.placement, active.job.devices)
        for active in chosen.values():
            devices = active.job.devices
            if not active.placement and (placement := packed(active.job.requested, free, devices)):
                placements[active.job.name] = placement
                take(free, placement, devices)
        return Plan(placements)

    def _chosen(self, view: ClusterView) -> dict[str, ActiveJob]:
        """Return the jobs that run from now on: by rank, all that still fit."""
        left = view.cluster.devices
        chosen: dict[str, ActiveJob] = {}
        ranked = sorted(view.jobs.values(), key=lambda active: (self._rank(active, view.now), active.job.name))
        for active in ranked:
            devices = active.job.requested * active.job.devices
            if devices <= left:
                chosen[active.job.name] = active
                left -= devices
        return chosen


def tiresias(active: ActiveJob, now: float) -> tuple[float, float]:
    return device_seconds(active, now) >= TIRESIAS_THRESHOLD, active.job.submitted_at


def remaining_time(active: ActiveJob, now: float) -> tuple[float, float]:  # noqa: ARG001 - all ranks have one shape
    job = active.job
    # As if on as many nodes as replicas: only the order counts.
    return active.remaining / job.speed.at(job.requested, job.requested * job.devices), job.submitted_at


def remaining_service(active: ActiveJob, now: float) -> tuple[float, float]:
    seconds, submitted_at = remaining_time(active, now)
    return seconds * active.job.requested * active.job.devices, submitted_at


def device_seconds(active: ActiveJob, now: float) -> float:
    """Return the service that the job has received."""
    until = now
    received = 0.0
    for change in reversed(active.sizes):
        received += change.replicas * (until - change.at)
        until = change.at
    return received * active.job.devices
