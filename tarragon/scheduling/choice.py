"""Which nodes take so many equal replicas: the fewest, then the best liked, then the nearest, then the fullest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tarragon.scheduling.asks import Amounts, Mask
from tarragon.scheduling.inventory import Scores
from tarragon.scheduling.ledger import Ledger
from tarragon.scheduling.snapshot import Demand
from tarragon.scheduling.subset import chosen, fewest

_TIERS = 8
"""So many degrees of liking are told apart."""

Share = tuple[int, int]
"""A row, and how many replicas it gets."""


def choose(demand: Demand, count: int, ledger: Ledger, home: Sequence[int]) -> list[Share]:
    """Rows other than `home`, where the gang has replicas already, for all of them; empty when there is too little."""
    capped: Amounts = np.minimum(ledger.room(demand), count)
    capped[list(home)] = 0
    nodes = fewest(_histogram(capped), count)
    if not nodes:
        return []
    if demand.preference:
        capped = _liked(capped, count, nodes, ledger.nodes.liking(demand))
    for near in _regions(capped, count, nodes, (ledger, home)):
        rooms = capped if near is None else capped * near
        histogram = _histogram(rooms)
        if fewest(histogram, count) == nodes:
            return _rows(chosen(histogram, count, nodes), count, rooms, ledger.roominess())
    return []


def _histogram(room: Amounts) -> list[int]:
    """How many rows have each room."""
    found: list[int] = np.bincount(room).tolist()
    return found


def _liked(room: Amounts, count: int, nodes: int, liking: Amounts) -> Amounts:
    """The rooms of the best liked rows with which it goes on no more nodes."""
    tiers = np.unique(liking[room > 0])[::-1]
    for least in tiers[:_TIERS]:
        liked: Amounts = room * (liking >= least)
        if fewest(_histogram(liked), count) == nodes:
            return liked
    return room


def _regions(room: Amounts, count: int, nodes: int, of: tuple[Ledger, Sequence[int]]) -> Iterator[Mask | None]:
    """From near to anywhere: the domains of `home`, or where there is none yet, of each level one that takes all."""
    ledger, home = of
    if home or nodes > 1:
        for domains in reversed(ledger.nodes.domains):
            if home:
                yield _sharing(domains, home)
            elif (best := _domain(domains, room, count, nodes)) is not None:
                yield domains == best
    yield None


def _domain(domains: Amounts, room: Amounts, count: int, nodes: int) -> int | None:
    """Of those whose roomiest nodes, so many of them, take all: the one with the least room altogether."""
    rows = np.flatnonzero((room > 0) & (domains >= 0))
    if not len(rows):
        return None
    most = count + 1
    order = np.sort(domains[rows] * most + (most - 1 - room[rows]))
    of, rooms = order // most, most - 1 - order % most
    sums = np.concatenate(([0], np.cumsum(rooms)))
    first = np.concatenate(([0], np.flatnonzero(of[1:] != of[:-1]) + 1))
    last = np.append(first[1:], len(of))
    enough = sums[np.minimum(first + nodes, last)] - sums[first] >= count
    if not enough.any():
        return None
    totals = np.where(enough, sums[last] - sums[first], np.iinfo(np.int64).max)
    return int(of[first[int(np.argmin(totals))]])


def _rows(rooms: Sequence[int], count: int, room: Amounts, roominess: Scores) -> list[Share]:
    """Of rows with equal room those that have least left for others; the roomiest are filled first."""
    shares: list[Share] = []
    for each in dict.fromkeys(rooms):
        there = np.flatnonzero(room == each)
        wanted = rooms.count(each)
        for row in tightest(there, wanted, roominess):
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
            near = rows[_sharing(domains, home)[rows]]
            if len(near):
                return near
    return rows


def _sharing(domains: Amounts, home: Sequence[int]) -> Mask:
    near = np.zeros(int(domains.max(initial=0)) + 2, np.bool_)
    near[domains[list(home)]] = True
    near[-1] = False
    return near[domains]
