"""The order of waiting gangs: by priority, then by fair share if that is enabled, then by queue time.

The order is kept from cycle to cycle. Few gangs come and go, and sorting thousands takes longer than deciding about
them.
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
"""If at most one in this many gangs has come or gone, these are inserted and removed; otherwise all are sorted."""


def in_order(cycle: Round) -> Iterator[Standing]:
    """Yield each waiting gang once. With fair shares, what one gang is given counts for the next."""
    line = _updated(cycle)
    if not cycle.snapshot.rules.is_fair:
        return iter(line)
    by_priority = groupby(line, key=attrgetter("gang.priority"))
    return (standing for _, equals in by_priority for standing in _by_share(list(equals), cycle.shares))


def _updated(cycle: Round) -> Sequence[Standing]:
    """Update the order by `Gang.order`. Gangs are identified by `id()`; the line keeps them alive, so that no other
    object gets the same id.
    """
    waiting, line, by_id = cycle.snapshot.waiting, cycle.lore.line, cycle.lore.in_line
    waiting_ids = set(map(id, waiting))
    added = [cycle.standing(gang) for gang in waiting if id(gang) not in by_id]
    removed = [by_id.pop(number) for number in [number for number in by_id if number not in waiting_ids]]
    by_id |= {id(standing.gang): standing for standing in added}
    if (len(removed) + len(added)) * _FEW > len(line):
        # Least significant key first: building thousands of key tuples takes longer than sorting three times.
        line[:] = sorted(by_id.values(), key=attrgetter("gang.name"))
        line.sort(key=attrgetter("gang.queued"))
        line.sort(key=attrgetter("gang.priority"), reverse=True)
    else:
        for standing in removed:
            del line[bisect_left(line, _order(standing), key=_order)]
        for standing in added:
            insort(line, standing, key=_order)
    return line


def _order(standing: Standing) -> tuple[int, dt.datetime, str]:
    return standing.gang.order


def _by_share(equals: Sequence[Standing], shares: Shares) -> Iterator[Standing]:
    """Yield the gangs of equal priority: each time the first one of the queue with the lowest share."""
    lines: dict[str, list[Standing]] = {}
    for standing in reversed(equals):
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
