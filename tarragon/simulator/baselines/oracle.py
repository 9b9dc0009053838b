"""Elastic sizes from true speed-ups: a greedy choice along the concave hull of the speed of each job."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tarragon.simulator.baselines.packing import give_back, packed, take
from tarragon.simulator.baselines.stateless import Stateless
from tarragon.simulator.engine import ActiveJob, ClusterView, Placement, Plan, SimulatedCluster
from tarragon.simulator.hull import HullPoint, job_hull

WORTH = 6
"""A resize has to save so many times what it costs."""
FASTER = 1.05
"""A resize that gains less than this factor is not worth a thought."""
SHORTEST = 60.0
"""A rest below this weighs no more than this: the schedulers of the literature decide once a minute."""


@dataclass(slots=True)
class _Sizing:
    hull: Sequence[HullPoint]
    weight: float
    target: int = 0


class ElasticOracle(Stateless):
    """Maximizes the sum of the speed-ups, weighted by what is left of a job (in seconds on one device) to the power of
    minus `exponent`. With 0 all jobs weigh the same.
    """

    def __init__(self, exponent: float, restart: float) -> None:
        self._exponent, self._restart = exponent, restart
        self._hulls: dict[str, Sequence[HullPoint]] = {}

    def decide(self, view: ClusterView) -> Plan:
        targets = self._targets(view)
        self._keep_sizes(view, targets)
        return Plan(_placements(view, targets))

    def ended(self, active: ActiveJob) -> None:
        self._hulls.pop(active.job.name, None)

    def _targets(self, view: ClusterView) -> dict[str, int]:
        """Hand out the devices, each time where the next step on a hull gains most per device."""
        sizings = {name: self._sizing(active, view) for name, active in view.jobs.items()}
        steps = [(-_gain(sizing, 0), name, 0) for name, sizing in sizings.items()]
        heapq.heapify(steps)
        left = view.cluster.devices
        while steps and left:
            _, name, step = heapq.heappop(steps)
            sizing = sizings[name]
            devices = sizing.hull[step + 1].devices - sizing.hull[step].devices
            if devices > left:
                continue
            left -= devices
            sizing.target = sizing.hull[step + 1].devices // view.jobs[name].job.devices
            if step + 2 < len(sizing.hull):
                heapq.heappush(steps, (-_gain(sizing, step + 1), name, step + 1))
        return {name: sizing.target for name, sizing in sizings.items()}

    def _sizing(self, active: ActiveJob, view: ClusterView) -> _Sizing:
        name, speed = active.job.name, active.job.speed
        if name not in self._hulls:
            self._hulls[name] = job_hull(active.job, view.cluster)
        alone = speed.at(1, 1)
        return _Sizing(self._hulls[name], max(SHORTEST, active.remaining / alone) ** -self._exponent / alone)

    def _keep_sizes(self, view: ClusterView, targets: dict[str, int]) -> None:
        """Undo what does not pay: growth that saves too little, then as much shrinking as there is room for."""
        for name, active in view.jobs.items():
            if active.placement and targets[name] > active.size and not self._pays(active, targets[name], view):
                targets[name] = active.size
        slack = view.cluster.devices - sum(size * view.jobs[name].job.devices for name, size in targets.items())
        shrinking = [active for name, active in view.jobs.items() if targets[name] < active.size]
        for active in sorted(shrinking, key=lambda each: (each.size - targets[each.job.name], each.job.name)):
            lost = (active.size - targets[active.job.name]) * active.job.devices
            if lost <= slack:
                slack -= lost
                targets[active.job.name] = active.size

    def _pays(self, active: ActiveJob, size: int, view: ClusterView) -> bool:
        devices = active.job.devices
        now, then = (
            active.job.speed.at(view.cluster.fewest_nodes(each, devices), each * devices)
            for each in (active.size, size)
        )
        saved = active.remaining / now - active.remaining / then
        return then > FASTER * now and saved >= WORTH * self._restart


def _gain(sizing: _Sizing, step: int) -> float:
    before, after = sizing.hull[step : step + 2]
    return sizing.weight * (after.speed - before.speed) / (after.devices - before.devices)


def _placements(view: ClusterView, targets: Mapping[str, int]) -> Mapping[str, Placement]:
    """Shrink on the nodes that a job has, then grow, the largest first; gather scattered jobs when nothing shrinks."""
    placements: dict[str, Placement] = {}
    free = dict(view.free)
    by_name = sorted(view.jobs.items())
    for name, active in by_name:
        if targets[name] < active.size:
            placements[name] = packed(targets[name], active.placement) or {}
            _move(free, active, placements[name])
    is_shrinking = bool(placements)
    for name, active in sorted(by_name, key=lambda each: -targets[each[0]]):
        if targets[name] > active.size and (placement := _anew(active, targets[name], free)):
            placements[name] = placement
            _move(free, active, placement)
    for name, active in () if is_shrinking else by_name:
        if name not in placements and active.size and _is_scattered(active, view.cluster):
            placement = _anew(active, active.size, free)
            if placement and len(placement) == 1:
                placements[name] = placement
                _move(free, active, placement)
    return placements


def _anew(active: ActiveJob, size: int, free: Mapping[str, int]) -> Placement | None:
    own = dict(free)
    give_back(own, active.placement, active.job.devices)
    return packed(size, own, active.job.devices)


def _move(free: dict[str, int], active: ActiveJob, after: Placement) -> None:
    give_back(free, active.placement, active.job.devices)
    take(free, after, active.job.devices)


def _is_scattered(active: ActiveJob, cluster: SimulatedCluster) -> bool:
    return len(active.placement) > cluster.fewest_nodes(active.size, active.job.devices)
