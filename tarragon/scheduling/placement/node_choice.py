"""Chooses nodes for equal replicas: the fewest, of these the highest score, then the nearest, then the fullest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isqrt

import numpy as np

from tarragon.scheduling.api.snapshot import Demand
from tarragon.scheduling.state.ledger import NodeLedger
from tarragon.scheduling.state.node_requests import Amounts, Mask

_MAX_SCORES = 8
"""The number of different preference scores that are tried."""

RowShare = tuple[int, int]
"""A row, and the number of replicas that it gets."""
_MAX_STEPS = 3000
"""The bound on work. Larger choices start with the roomiest nodes and optimize only the last ones."""


@dataclass(frozen=True, slots=True, eq=False)
class _Rooms:
    """The rows with room, and how many replicas each takes. Where little is left, these are few of thousands."""

    rows: Amounts
    room: Amounts
    nodes: int
    """The number of all nodes."""

    def some(self, mask: Mask) -> _Rooms:
        return _Rooms(self.rows[mask], self.room[mask], self.nodes)

    def histogram(self) -> list[int]:
        """Count the nodes with each room."""
        counts: list[int] = np.bincount(self.room, minlength=1).tolist()
        counts[0] = self.nodes - len(self.rows)
        return counts


def choose_rows(demand: Demand, count: int, ledger: NodeLedger, home: Sequence[int]) -> list[RowShare]:
    """Choose rows outside `home`, where the gang already has replicas, for all replicas; empty if there is too little
    room.
    """
    if not count:
        return []
    room = ledger.room(ledger.requests.of(demand))
    takes = room > 0
    takes[list(home)] = False
    rows = takes.nonzero()[0]
    rooms = _Rooms(rows, np.minimum(room[rows], count), len(room))
    nodes = _min_nodes(rooms.histogram(), count)
    if not nodes:
        return []
    if demand.node_scores:
        rooms = _preferred(rooms, count, nodes, ledger.nodes.preference_scores(demand))
    if nodes == 1:
        whole = nearest(rooms.rows[rooms.room == count], ledger, home)
        return [(ledger.tightest(whole, 1, [(ledger.requests.of(demand), count)])[0], count)]
    for mask in _regions(rooms, count, nodes, (ledger, home)):
        rooms_there = rooms if mask is None else rooms.some(mask)
        histogram = rooms_there.histogram()
        if _min_nodes(histogram, count) == nodes:
            return _shares(_choose_rooms(histogram, count, nodes), rooms_there, (demand, count), ledger)
    return []


def _preferred(rooms: _Rooms, count: int, nodes: int, liking: Amounts) -> _Rooms:
    """The rows with the highest scores that do not need more nodes."""
    liked = liking[rooms.rows]
    for least in np.unique(liked)[::-1][:_MAX_SCORES]:
        preferred = rooms.some(liked >= least)
        if _min_nodes(preferred.histogram(), count) == nodes:
            return preferred
    return rooms


def _regions(rooms: _Rooms, count: int, nodes: int, of: tuple[NodeLedger, Sequence[int]]) -> Iterator[Mask | None]:
    """Yield masks from near to anywhere: the domains of `home`, or if that is empty, one domain of each level that
    takes all.
    """
    ledger, home = of
    for domains in reversed(ledger.nodes.domains):
        if home:
            yield _sharing(domains, home, rooms.rows)
        elif (best := _tightest_domain(domains[rooms.rows], rooms.room, count, nodes)) is not None:
            yield domains[rooms.rows] == best
    yield None


def _tightest_domain(domains: Amounts, room: Amounts, count: int, nodes: int) -> int | None:
    """Of the domains whose `nodes` roomiest nodes take all replicas, the one with the least total room."""
    roomy = np.append(np.bincount(domains + 1, room)[1:] >= count, False)[domains]  # the last is for none, -1
    if not roomy.any():
        return None
    most = count + 1
    order = np.sort(domains[roomy] * most + (most - 1 - room[roomy]))
    of, rooms = order // most, most - 1 - order % most
    sums = np.concatenate(([0], np.cumsum(rooms)))
    first = np.concatenate(([0], np.flatnonzero(of[1:] != of[:-1]) + 1))
    last = np.append(first[1:], len(of))
    enough = sums[np.minimum(first + nodes, last)] - sums[first] >= count
    if not enough.any():
        return None
    totals = np.where(enough, sums[last] - sums[first], np.iinfo(np.int64).max)
    return int(of[first[int(np.argmin(totals))]])


def _shares(wanted: Sequence[int], rooms: _Rooms, of: tuple[Demand, int], ledger: NodeLedger) -> list[RowShare]:
    """Choose rows for these rooms, of equal ones those with least left for others; the roomiest are filled first."""
    shares: list[RowShare] = []
    request, count = ledger.requests.of(of[0]), of[1]
    for each, number in Counter(wanted).items():
        for row in ledger.tightest(rooms.rows[rooms.room == each], number, [(request, min(each, count))]):
            given = min(each, count)
            count -= given
            shares.append((row, given))
    return shares


def nearest(rows: Amounts, ledger: NodeLedger, home: Sequence[int]) -> Amounts:
    """The rows nearest to `home`; all of them if none is nearer than others."""
    if home:
        for domains in reversed(ledger.nodes.domains):
            near = rows[_sharing(domains, home, rows)]
            if len(near):
                return near
    return rows


def _sharing(domains: Amounts, home: Sequence[int], rows: Amounts) -> Mask:
    """A mask of the rows that share a domain with `home`."""
    near = np.zeros(int(domains.max(initial=0)) + 2, np.bool_)
    near[domains[list(home)]] = True
    near[-1] = False
    return near[domains[rows]]


def _min_nodes(nodes_with: Sequence[int], count: int) -> int | None:
    """The least number of nodes for `count` replicas; `nodes_with[room]` nodes take `room` replicas each. None if all
    are too few.
    """
    used = 0
    for room in range(len(nodes_with) - 1, 0, -1):
        there = nodes_with[room]
        if there * room >= count:
            return used + -(-count // room)
        used += there
        count -= there * room
    return None


def _choose_rooms(nodes_with: Sequence[int], count: int, nodes: int) -> list[int]:
    """Choose the rooms of this many nodes, roomiest first, that take `count` with the least left over.

    Of equal choices, the one with the fewest very roomy nodes: a later gang may need these. `nodes` must be the result
    of `_min_nodes`.
    """
    left = list(nodes_with)
    found: list[int] = []
    weighed = max(2, isqrt(2 * _MAX_STEPS // sum(1 for there in left if there)))
    while nodes - len(found) > weighed:
        room = max(room for room, there in enumerate(left) if there)
        taken = min(left[room], nodes - len(found) - weighed)
        left[room] -= taken
        found += [room] * taken
    return found + _choose_exactly(left, count - sum(found), nodes - len(found))


def _choose_exactly(nodes_with: Sequence[int], count: int, nodes: int) -> list[int]:
    """Compute the reachable sums for each number of nodes, as bits of an integer, then trace back from the roomiest."""
    rooms = [room for room in range(1, len(nodes_with)) if nodes_with[room]]
    useful = (1 << (count + rooms[-1])) - 1
    sums = [1] + [0] * nodes
    before: list[list[int]] = []
    for room in rooms:
        before.append(sums)
        sums = sums.copy()
        for taken in range(1, min(nodes_with[room], nodes) + 1):
            for others in range(nodes - taken + 1):
                sums[others + taken] |= (before[-1][others] << (room * taken)) & useful
    enough = sums[nodes] >> count
    return _trace_back(rooms, before, count + (enough & -enough).bit_length() - 1, nodes)


def _trace_back(rooms: Sequence[int], before: Sequence[Sequence[int]], total: int, nodes: int) -> list[int]:
    """Trace the rooms back, using as few roomy nodes as possible."""
    found: list[int] = []
    for room, sums in zip(reversed(rooms), reversed(before), strict=True):
        while not sums[nodes] >> total & 1:
            found.append(room)
            nodes, total = nodes - 1, total - room
    return found
