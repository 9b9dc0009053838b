"""The sizes between which a gang can choose, and what each step from one to the next brings and costs.

The steps are the concave hull of the gang's speed-up over its sizes: each brings less for each device than the one
before, so that the steps of many gangs can be taken in the order of their value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from tarragon.job.model import ReplicaType
from tarragon.scheduling.api.snapshot import Demand
from tarragon.scheduling.api.work import SpeedupCurve, devices_of
from tarragon.scheduling.state.request_table import RequestTable

_MAX_NODES_IN_STEPS = 16
"""Up to this many whole nodes, each number of nodes is a possible size; beyond, only each doubling."""
_MIN_SHARE = 1e-9
"""The share of a gang that requests nothing."""

Cost = tuple[tuple[int, int], ...]
"""What a number of replicas request in total: (column of the inventory, amount)."""


@dataclass(frozen=True, slots=True)
class SizeStep:
    """A step to this number of replicas of the elastic demand. The first step includes what a gang cannot start without
    of the others.
    """

    size: int
    cost: Cost
    value: float
    """The speed-up that it adds for each cluster that it would take: a tenth of a cluster counts ten times."""
    is_beyond_request: bool = False
    """Whether the gang has all that it requests before this step."""
    is_dearer_than_next: bool = False
    """Whether the next step is worth more, as the first one includes other demands, such as parameter servers."""


def elastic_demand(demands: Sequence[Demand]) -> Demand:
    """Return the demand whose number of replicas can vary most; of a rigid gang, the one that requests most devices."""
    return max(demands, key=lambda each: (each.upper_limit - each.minimum, each.requested * devices_of(each.resources)))


def size_steps(demands: Sequence[Demand], curve: SpeedupCurve, requests: RequestTable) -> Sequence[SizeStep]:
    """Return the steps of a gang, the smallest size first."""
    elastic = elastic_demand(demands)
    per_node, capacity = max(1, requests.of(elastic).most_on_empty_node), requests.total_capacity
    steps = []
    corners = hull_of(curve, possible_sizes(elastic, curve, min(per_node, elastic.upper_limit)))
    for (smaller, slow), (larger, fast) in pairwise(corners):
        others: dict[ReplicaType, int] = {} if smaller else {demand.type: demand.minimum for demand in demands}
        cost = total_cost(demands, {**others, elastic.type: larger - smaller}, requests)
        share = max((amount / capacity[column] for column, amount in cost), default=0.0)
        is_beyond_request = smaller > 0 and smaller >= elastic.requested
        steps.append(SizeStep(larger, cost, (fast - slow) / max(share, _MIN_SHARE), is_beyond_request))
    if len(steps) > 1 and steps[1].value > steps[0].value and not steps[1].is_beyond_request:
        steps[0] = replace(steps[0], is_dearer_than_next=True)
    return steps


def total_cost(demands: Sequence[Demand], counts: Mapping[ReplicaType, int], requests: RequestTable) -> Cost:
    """Return what these numbers of replicas, by type, request together."""
    total: Counter[int] = Counter()
    for demand in demands:
        for column, amount in requests.of(demand).costs:
            total[column] += amount * counts.get(demand.type, 0)
    return tuple(sorted(total.items()))


def possible_sizes(demand: Demand, curve: SpeedupCurve, replicas_per_node: int) -> Sequence[int]:
    """Return the sizes that are worth comparing: the bounds, the request, powers of two on one node, and whole nodes.

    Sizes in between would leave parts of nodes that few other gangs can use. Sizes of which nothing can be known are
    left out.
    """
    least, most = max(1, demand.minimum), demand.upper_limit
    if curve.largest_known is not None:
        most = max(least, min(most, curve.largest_known))
    node = max(1, replicas_per_node)
    aligned = {least, demand.requested, *_doubled(1, node), *range(node, node * _MAX_NODES_IN_STEPS + 1, node)}
    aligned.update(_doubled(node * _MAX_NODES_IN_STEPS, most))
    return sorted(size for size in aligned if least <= size <= most)


def hull_of(curve: SpeedupCurve, sizes: Iterable[int]) -> Sequence[tuple[int, float]]:
    """Return the corners (size, speed-up) of the concave hull, from (0, 0). Sizes that are no faster are left out."""
    hull: list[tuple[int, float]] = [(0, 0.0)]
    for size in sizes:
        speedup = curve.at(size)
        if speedup <= hull[-1][1]:
            continue
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) <= _slope(hull[-1], (size, speedup)):
            hull.pop()
        hull.append((size, speedup))
    return hull


def _doubled(first: int, last: int) -> Iterable[int]:
    while first <= last:
        yield first
        first *= 2


def _slope(left: tuple[int, float], right: tuple[int, float]) -> float:
    return (right[1] - left[1]) / (right[0] - left[0])
