"""How much faster jobs are with more devices: measured tables, and Amdahl's law."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tarragon.simulator.workload import SpeedModel

Point = tuple[int, int, float]
"""Nodes, devices, and the speed measured there."""


class SpeedTable:
    """Speeds that were measured at some placements. Between these they are interpolated linearly, first in nodes, then
    in devices. Beyond the largest placement a job does not get faster.
    """

    def __init__(self, points: Iterable[Point]) -> None:
        columns: dict[int, dict[int, float]] = {}
        for nodes, devices, speed in points:
            columns.setdefault(devices, {})[nodes] = speed
        self._columns = {devices: sorted(columns[devices].items()) for devices in sorted(columns)}
        self._sizes = sorted(columns)
        self._known: dict[tuple[int, int], float] = {}

    def at(self, nodes: int, devices: int) -> float:
        speed = self._known.get((nodes, devices))
        if speed is None:
            speed = self._known[nodes, devices] = self._interpolated(nodes, devices)
        return speed

    def _interpolated(self, nodes: int, devices: int) -> float:
        if devices < self._sizes[0]:
            return self._of_size(self._sizes[0], nodes) * devices / self._sizes[0]
        return _between([(size, self._of_size(size, nodes)) for size in self._neighbours(devices)], devices)

    def _neighbours(self, devices: int) -> list[int]:
        after = bisect_left(self._sizes, devices)
        if after < len(self._sizes) and self._sizes[after] == devices:
            return [devices]
        return self._sizes[max(0, after - 1) : after + 1]

    def _of_size(self, size: int, nodes: int) -> float:
        return _between(self._columns[size], nodes)


@dataclass(frozen=True, slots=True)
class ScaledSpeed:
    """A speed-up curve for a job of another length."""

    model: SpeedModel
    factor: float

    def at(self, nodes: int, devices: int) -> float:
        return self.model.at(nodes, devices) * self.factor


@dataclass(frozen=True, slots=True)
class AmdahlSpeed:
    """Amdahl's law: the parallel part of a job gets faster with each device, the rest never."""

    parallel: float

    def at(self, nodes: int, devices: int) -> float:  # noqa: ARG002 - all placements of a size are equal
        return 1 / (1 - self.parallel + self.parallel / devices)


@dataclass(frozen=True, slots=True)
class ReplicaSpeed:
    """A speed that was measured by the number of replicas, each of which has several devices."""

    model: SpeedModel
    devices: int

    def at(self, nodes: int, devices: int) -> float:
        return self.model.at(nodes, -(-devices // self.devices))


def with_run_time(model: SpeedModel, seconds: float, placement: tuple[int, int]) -> ScaledSpeed:
    """Return the curve for a job that takes so many seconds on these nodes and devices."""
    return ScaledSpeed(model, 1 / (seconds * model.at(*placement)))


SpeedTables = Mapping[tuple[str, int], SpeedTable]
"""By application and batch size."""


def _between(points: list[tuple[int, float]], where: int) -> float:
    """Interpolate linearly between the points, which are sorted; outside, the nearest one counts."""
    after = bisect_left(points, where, key=lambda point: point[0])
    if after == 0:
        return points[0][1]
    if after == len(points):
        return points[-1][1]
    (left, low), (right, high) = points[after - 1], points[after]
    return low + (high - low) * (where - left) / (right - left)
