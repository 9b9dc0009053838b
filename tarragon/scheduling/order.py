"""In which order gangs are looked at: by priority, then by fair share if that is asked for, then as they came."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from tarragon.scheduling.shares import Shares
from tarragon.scheduling.snapshot import Gang, Snapshot


def in_order(snapshot: Snapshot, shares: Shares) -> Iterator[Gang]:
    """Each waiting gang once. With fair shares, what was given to the one before counts for the next."""
    gangs = _by_order(snapshot.waiting)
    if not snapshot.rules.is_fair:
        yield from gangs
        return
    for _, equals in groupby(gangs, key=lambda gang: gang.priority):
        yield from _fairly(list(equals), shares)


def _by_order(waiting: Sequence[Gang]) -> list[Gang]:
    """As by `Gang.order`, which takes a tuple for each of thousands: the last of its parts first, each sort keeping to
    what those before it did.
    """
    gangs = sorted(waiting, key=attrgetter("name"))
    gangs.sort(key=attrgetter("queued"))
    gangs.sort(key=attrgetter("priority"), reverse=True)
    return gangs


def _fairly(gangs: Sequence[Gang], shares: Shares) -> Iterator[Gang]:
    """First whose namespace holds least for its weight: of that namespace the one that came first."""
    lines: dict[str, list[Gang]] = {}
    for gang in reversed(gangs):
        lines.setdefault(gang.queue, []).append(gang)
    heads = [(shares.share(queue), line[-1].order, queue) for queue, line in lines.items()]
    heapq.heapify(heads)
    while heads:
        share, order, queue = heapq.heappop(heads)
        now = shares.share(queue)
        if now != share:
            heapq.heappush(heads, (now, order, queue))
            continue
        line = lines[queue]
        yield line.pop()
        if line:
            heapq.heappush(heads, (shares.share(queue), line[-1].order, queue))
