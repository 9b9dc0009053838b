"""The concave hull of a job's speed by its size: what devices are worth to it where sizes may be mixed over time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tarragon.simulator.engine import SimulatedCluster
from tarragon.simulator.workload import TrainingJob


@dataclass(frozen=True, slots=True)
class HullPoint:
    devices: int
    """Of all replicas together."""
    speed: float


def job_hull(job: TrainingJob, cluster: SimulatedCluster) -> Sequence[HullPoint]:
    """Return the hull over the usual sizes, on as few nodes as possible. It begins with no device and no speed."""
    each = job.devices
    return concave_hull(
        HullPoint(size * each, job.speed.at(cluster.fewest_nodes(size, each), size * each))
        for size in usual_sizes(job, cluster)
    )


def usual_sizes(job: TrainingJob, cluster: SimulatedCluster) -> Sequence[int]:
    """Return the minimum, and within the bounds the powers of two below a node and all multiples of a node."""
    node, largest = cluster.largest_node // job.devices, min(job.maximum, cluster.room(job.devices))
    usual = {*_powers_of_two(node), *range(node, largest + 1, node)}
    return sorted({job.minimum, *(size for size in usual if job.minimum <= size <= largest)})


def concave_hull(points: Iterable[HullPoint]) -> Sequence[HullPoint]:
    """Return the points, in the order of their devices, that no mixture of others exceeds; first of all, no device."""
    hull = [HullPoint(0, 0.0)]
    for point in points:
        if point.speed <= hull[-1].speed:
            continue
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) <= _slope(hull[-1], point):
            hull.pop()
        hull.append(point)
    return hull


def _slope(before: HullPoint, after: HullPoint) -> float:
    return (after.speed - before.speed) / (after.devices - before.devices)


def _powers_of_two(limit: int) -> Iterator[int]:
    size = 1
    while size < limit:
        yield size
        size *= 2
