"""In which order gangs are looked at: by priority, then by fair share if that is asked for, then as they came.

The order is kept from round to round: few come and go, and to sort thousands takes longer than to decide about them.
"""

from __future__ import annotations

import datetime as dt
import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from tarragon.scheduling.api.cycle_memory import Standing
from tarragon.scheduling.cycle.scheduling_cycle import Round
from tarragon.scheduling.cycle.shares import Shares

_FEW = 20
"""One that comes or goes among so many is put into its place, or taken out; with more of them all are sorted."""


def in_order(made: Round) -> Iterator[Standing]:
    """Each waiting gang once. With fair shares, what was given to the one before counts for the next."""
    line = _renewed(made)
    if not made.snapshot.rules.is_fair:
        return iter(line)
    equals = groupby(line, key=attrgetter("gang.priority"))
    return (standing for _, several in equals for standing in _fairly(list(several), made.shares))


def _renewed(made: Round) -> Sequence[Standing]:
    """By `Gang.order`. Gangs are told apart by which object they are: the line holds those that are in it, so that no
    other one gets their number.
    """
    waiting, line, known = made.snapshot.waiting, made.lore.line, made.lore.in_line
    here = set(map(id, waiting))
    coming = [made.standing(gang) for gang in waiting if id(gang) not in known]
    gone = [known.pop(number) for number in [number for number in known if number not in here]]
    known |= {id(standing.gang): standing for standing in coming}
    if (len(gone) + len(coming)) * _FEW > len(line):
        # The last part of the order first: a tuple for each of thousands takes longer than to sort them three times.
        line[:] = sorted(known.values(), key=attrgetter("gang.name"))
        line.sort(key=attrgetter("gang.queued"))
        line.sort(key=attrgetter("gang.priority"), reverse=True)
    else:
        for standing in gone:
            del line[bisect_left(line, _order(standing), key=_order)]
        for standing in coming:
            insort(line, standing, key=_order)
    return line


def _order(standing: Standing) -> tuple[int, dt.datetime, str]:
    return standing.gang.order


def _fairly(several: Sequence[Standing], shares: Shares) -> Iterator[Standing]:
    """First whose namespace holds least for its weight: of that namespace the one that came first."""
    lines: dict[str, list[Standing]] = {}
    for standing in reversed(several):
        lines.setdefault(standing.gang.queue, []).append(standing)
    heads = [(shares.share(queue), line[-1].gang.order, queue) for queue, line in lines.items()]
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
            heapq.heappush(heads, (shares.share(queue), line[-1].gang.order, queue))
