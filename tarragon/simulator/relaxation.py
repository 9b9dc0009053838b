"""A lower bound of the mean completion time by linear programming.

A job that is at most `v` fast, and does the part `x(t)` of its work at the moment `t`, ends no earlier than the mean of
`t` over its work plus half of the time that it takes at full speed, 1 / v. The program minimizes the sum of these ends:
work goes along the concave hull of each job's speed, and all jobs together have no more devices than there are. It
ignores that devices are whole and that resizes cost time.

The program is solved over intervals of time, which is inexact. Its prices of the devices, however, give a bound for
continuous time that holds whatever the prices are (Lagrange duality): each job pays for its devices and chooses its
cheapest moments; what all pay in sum is not counted. `certified_bound` evaluates that exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import numpy as np
import numpy.typing as npt

from tarragon.simulator.hull import HullPoint

Floats = npt.NDArray[np.float64]

INTERVALS = 100
"""From the first submission to the last. Twice as many raise the bound by less than half a percent."""
_GROWTH = 1.08
"""How much longer than the one before each interval is after the last submission."""


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """When a job may begin, and its hull step by step: the devices of each step and the speed that these add."""

    begins_at: float
    devices: Floats
    speeds: Floats

    @classmethod
    def of(cls, begins_at: float, hull: Sequence[HullPoint]) -> Curve:
        steps = list(pairwise(hull))
        return cls(
            begins_at,
            np.array([float(after.devices - before.devices) for before, after in steps]),
            np.array([after.speed - before.speed for before, after in steps]),
        )

    @property
    def shortest(self) -> float:
        """The seconds that the job takes at full speed."""
        return 1 / float(self.speeds.sum())

    def pieces(self, edges: Floats) -> tuple[Floats, Floats]:
        """Return the beginnings and lengths of the intervals, without what is before the job may begin."""
        begins = np.maximum(edges[:-1], self.begins_at)
        return begins, np.maximum(edges[1:] - begins, 0.0)


def sum_of_ends(curves: Sequence[Curve], devices: int) -> float:
    """Return a lower bound of the sum of all ends. Needs SciPy."""
    edges = _edges(curves)
    return certified_bound(curves, devices, edges, _prices(curves, devices, edges))


def certified_bound(curves: Sequence[Curve], devices: int, edges: Floats, prices: Floats) -> float:
    """Return the bound that follows from prices per second of a device, one for each interval, none negative."""
    income = devices * float((prices * np.diff(edges)).sum())
    return sum(_cheapest_end(curve, edges, prices) for curve in curves) - income


def _edges(curves: Sequence[Curve]) -> Floats:
    """Return the limits of the intervals, up to a moment at which all jobs have ended even one after the other."""
    first, last = min(curve.begins_at for curve in curves), max(curve.begins_at for curve in curves)
    end = last + sum(curve.shortest for curve in curves)
    step = max((last - first) / INTERVALS, (end - last) / INTERVALS / 10)
    edges = [first]
    while edges[-1] < end:
        edges.append(edges[-1] + step)
        step *= _GROWTH if edges[-1] > last else 1.0
    return np.array(edges)


def _cheapest_end(curve: Curve, edges: Floats, prices: Floats) -> float:
    """Return the smallest sum of the end of a job and what it pays.

    Doing work at a moment costs that moment plus the price by the devices that the work takes. So all work is done
    where the cost is below a threshold.
    """
    begins, lengths = curve.pieces(edges)
    costs = (begins[:, None] + prices[:, None] * (curve.devices / curve.speeds)).ravel()
    lasting = np.repeat(lengths, len(curve.speeds))
    rates = np.tile(curve.speeds, len(lengths))
    spent = np.clip(_threshold(costs, lasting, rates) - costs, 0.0, lasting)
    return float((rates * spent * (costs + spent / 2)).sum()) + curve.shortest / 2


def _threshold(costs: Floats, lasting: Floats, rates: Floats) -> float:
    """Return the cost up to which pieces have to be used to do the whole work."""
    moments = np.concatenate([costs, costs + lasting])
    order = np.argsort(moments, kind="stable")
    moments = moments[order]
    speeds = np.cumsum(np.concatenate([rates, -rates])[order])[:-1]
    done = np.concatenate([[0.0], np.cumsum(speeds * np.diff(moments))])
    last = int(np.searchsorted(done, 1.0)) - 1
    return float(moments[last] + (1 - done[last]) / speeds[last])


def _prices(curves: Sequence[Curve], devices: int, edges: Floats) -> Floats:
    """Solve the program over the intervals, and return the price of a device in each."""
    from scipy.optimize import linprog  # noqa: PLC0415 - an extra
    from scipy.sparse import coo_array  # noqa: PLC0415

    lengths = np.diff(edges)
    jobs: list[npt.NDArray[np.int64]] = []
    intervals: list[npt.NDArray[np.int64]] = []
    shares: list[Floats] = []
    costs: list[Floats] = []
    limits: list[Floats] = []
    for index, curve in enumerate(curves):
        begins, lasting = curve.pieces(edges)
        usable = np.flatnonzero(lasting)
        for count, speed in zip(curve.devices, curve.speeds, strict=True):
            jobs.append(np.full(len(usable), index, dtype=np.int64))
            intervals.append(usable)
            shares.append(count / speed / lengths[usable])
            costs.append(begins[usable] + lasting[usable] / 2)
            limits.append(speed * lasting[usable])
    columns = np.arange(sum(map(len, jobs)))
    work = coo_array((np.ones(len(columns)), (np.concatenate(jobs), columns)))
    held = coo_array((np.concatenate(shares), (np.concatenate(intervals), columns)), shape=(len(lengths), len(columns)))
    upper = np.concatenate(limits)
    found = linprog(
        np.concatenate(costs),
        A_ub=held.tocsr(),
        b_ub=np.full(len(lengths), float(devices)),
        A_eq=work.tocsr(),
        b_eq=np.ones(len(curves)),
        bounds=np.stack([np.zeros_like(upper), upper], axis=1),
        method="highs-ds",
    )
    return cast("Floats", np.maximum(0.0, -found.ineqlin.marginals / lengths))
