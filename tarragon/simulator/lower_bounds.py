"""Mean completion times that no scheduler can beat, to see how much is left to win."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from tarragon.simulator.engine import SimulatedCluster
from tarragon.simulator.hull import HullPoint, concave_hull
from tarragon.simulator.speedups import ScaledSpeed
from tarragon.simulator.workload import SpeedModel, TrainingJob, Workload

MAX_LP_JOBS = 2000
"""Larger workloads would take the linear program too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LowerBounds:
    """Bounds of the mean completion time over all jobs, in seconds. The largest says most."""

    alone: float
    """Every job has the whole cluster, and the size at which it is fastest."""
    srpt_fluid: float
    """One machine that is as fast as all devices together runs the job with the shortest remaining time."""
    lp: float | None
    """By linear programming (`relaxation.py`); None if that is not possible."""


def lower_bounds(workloads: Sequence[Workload], cluster: SimulatedCluster, restart: float) -> LowerBounds:
    """Return the bounds for jobs that make no progress for `restart` seconds after their start."""
    hulls = _Hulls(cluster)
    works = [[_Work(job.submitted_at + restart, hulls.of(job)) for job in workload.jobs] for workload in workloads]
    count = sum(map(len, works))
    submitted = sum(job.submitted_at for workload in workloads for job in workload.jobs)

    def mean(ends: Iterable[float]) -> float:
        return (math.fsum(ends) - submitted) / count

    return LowerBounds(
        alone=mean(work.begins_at + 1 / work.hull[-1].speed for works_of_one in works for work in works_of_one),
        srpt_fluid=mean(_srpt_ends(works_of_one, cluster.devices) for works_of_one in works),
        lp=None if why_no_lp(workloads) else mean(_lp_ends(works_of_one, cluster.devices) for works_of_one in works),
    )


def why_no_lp(workloads: Sequence[Workload]) -> str:
    """Return why there is no bound by linear programming; empty if there is one."""
    largest = max(len(workload.jobs) for workload in workloads)
    if largest > MAX_LP_JOBS:
        return f"the workload has {largest:,} jobs, more than {MAX_LP_JOBS:,}"
    return "" if find_spec("scipy") else "SciPy is not installed (pip install scipy)"


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    begins_at: float
    hull: Sequence[HullPoint]


class _Hulls:
    """The hulls over all placements of all sizes. Jobs that differ in length only have the same, scaled."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._known: dict[tuple[SpeedModel, int, int, int], Sequence[HullPoint]] = {}

    def of(self, job: TrainingJob) -> Sequence[HullPoint]:
        model, factor = (job.speed.model, job.speed.factor) if isinstance(job.speed, ScaledSpeed) else (job.speed, 1.0)
        key = model, job.minimum, job.maximum, job.devices
        if key not in self._known:
            sizes = range(job.minimum, min(job.maximum, self._cluster.room(job.devices)) + 1)
            points = (HullPoint(size * job.devices, self._fastest(model, size, job.devices)) for size in sizes)
            self._known[key] = concave_hull(points)
        return [HullPoint(point.devices, point.speed * factor) for point in self._known[key]]

    def _fastest(self, model: SpeedModel, size: int, devices: int) -> float:
        """Return the speed on the best number of nodes: half nodes may be faster than full ones."""
        fewest = self._cluster.fewest_nodes(size, devices)
        nodes = range(fewest, min(size, len(self._cluster.capacities)) + 1)
        return max(model.at(count, size * devices) for count in nodes)


def _srpt_ends(works: Sequence[_Work], devices: int) -> float:
    """Return the sum of the ends on one fast machine, where the shortest remaining time is optimal."""
    arrivals = sorted((work.begins_at, _least_device_seconds(work) / devices) for work in works)
    left: list[float] = []
    ends, now = 0.0, 0.0
    for begins_at, seconds in [*arrivals, (math.inf, 0.0)]:
        while left and now + left[0] <= begins_at:
            now += heapq.heappop(left)
            ends += now
        if left:
            heapq.heapreplace(left, left[0] - (begins_at - now))
        now = begins_at
        heapq.heappush(left, seconds)
    return ends


def _least_device_seconds(work: _Work) -> float:
    """Return the device seconds where the job uses devices best: on a concave hull that is its first step."""
    first = work.hull[1]
    return first.devices / first.speed


def _lp_ends(works: Sequence[_Work], devices: int) -> float:
    from tarragon.simulator.relaxation import Curve, sum_of_ends  # noqa: PLC0415 - NumPy and SciPy take a second

    return sum_of_ends([Curve.of(work.begins_at, work.hull) for work in works], devices)
