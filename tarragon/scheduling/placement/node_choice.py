"""Which nodes take so many equal replicas: the fewest, then the best liked, then the nearest, then the fullest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tarragon.scheduling.api.snapshot import Demand
from tarragon.scheduling.placement.node_subset import chosen, fewest
from tarragon.scheduling.state.inventory import Scores
from tarragon.scheduling.state.ledger import Ledger
from tarragon.scheduling.state.node_requests import Amounts, Mask

_TIERS = 8
"""So many degrees of liking are told apart."""

Share = tuple[int, int]
"""A row, and how many replicas it gets."""


@dataclass(frozen=True, slots=True, eq=False)
class _Rooms:
    """Rows that take any, and how many each of them takes: few of thousands do, where little is left."""

    rows: Amounts
    room: Amounts
    nodes: int
    """All that there are."""

    def some(self, those: Mask) -> _Rooms:
        return _Rooms(self.rows[those], self.room[those], self.nodes)

    def histogram(self) -> list[int]:
        """How many nodes have each room."""
        found: list[int] = np.bincount(self.room, minlength=1).tolist()
        found[0] = self.nodes - len(self.rows)
        return found


def choose(demand: Demand, count: int, ledger: Ledger, home: Sequence[int]) -> list[Share]:
    """Rows other than `home`, where the gang has replicas already, for all of them; empty when there is too little."""
    if not count:
        return []
    room = ledger.room(demand)
    takes = room > 0
    takes[list(home)] = False
    rows = takes.nonzero()[0]
    rooms = _Rooms(rows, np.minimum(room[rows], count), len(room))
    nodes = fewest(rooms.histogram(), count)
    if not nodes:
        return []
    if demand.preference:
        rooms = _liked(rooms, count, nodes, ledger.nodes.liking(demand))
    if nodes == 1:
        whole = nearest(rooms.rows[rooms.room == count], ledger, home)
        return [(tightest(whole, 1, ledger.roominess())[0], count)]
    for near in _regions(rooms, count, nodes, (ledger, home)):
        there = rooms if near is None else rooms.some(near)
        histogram = there.histogram()
        if fewest(histogram, count) == nodes:
            return _shares(chosen(histogram, count, nodes), count, there, ledger.roominess())
    return []


def _liked(rooms: _Rooms, count: int, nodes: int, liking: Amounts) -> _Rooms:
    """The best liked rows with which it goes on no more nodes."""
    liked = liking[rooms.rows]
    for least in np.unique(liked)[::-1][:_TIERS]:
        some = rooms.some(liked >= least)
        if fewest(some.histogram(), count) == nodes:
            return some
    return rooms


def _regions(rooms: _Rooms, count: int, nodes: int, of: tuple[Ledger, Sequence[int]]) -> Iterator[Mask | None]:
    """From near to anywhere: the domains of `home`, or where there is none yet, of each level one that takes all."""
    ledger, home = of
    for domains in reversed(ledger.nodes.domains):
        if home:
            yield _sharing(domains, home, rooms.rows)
        elif (best := _domain(domains[rooms.rows], rooms.room, count, nodes)) is not None:
            yield domains[rooms.rows] == best
    yield None


def _domain(domains: Amounts, room: Amounts, count: int, nodes: int) -> int | None:
    """Of those whose roomiest nodes, so many of them, take all: the one with the least room altogether."""
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


def _shares(wanted: Sequence[int], count: int, rooms: _Rooms, roominess: Scores) -> list[Share]:
    """Of rows with equal room those that have least left for others; the roomiest are filled first."""
    shares: list[Share] = []
    for each, number in Counter(wanted).items():
        for row in tightest(rooms.rows[rooms.room == each], number, roominess):
            given = min(each, count)
            count -= given
            shares.append((row, given))
    return shares


def tightest(rows: Amounts, wanted: int, roominess: Scores) -> list[int]:
    """So many of the rows, those with least left over; of equals the first."""
    if wanted == 1:
        return [int(rows[int(np.argmin(roominess[rows]))])]
    return [int(row) for row in rows[np.argsort(roominess[rows], kind="stable")[:wanted]]]


def nearest(rows: Amounts, ledger: Ledger, home: Sequence[int]) -> Amounts:
    """Those of the rows that stand nearest to these; all of them where none stands nearer."""
    if home:
        for domains in reversed(ledger.nodes.domains):
            near = rows[_sharing(domains, home, rows)]
            if len(near):
                return near
    return rows


def _sharing(domains: Amounts, home: Sequence[int], rows: Amounts) -> Mask:
    """Which of the rows are where one of these is."""
    near = np.zeros(int(domains.max(initial=0)) + 2, np.bool_)
    near[domains[list(home)]] = True
    near[-1] = False
    return near[domains[rows]]
