"""The order of waiting gangs: by priority, then by fair share if that is enabled, then by queue time.

The order is kept from cycle to cycle. Few gangs come and go, and sorting thousands takes longer than deciding about
them.
"""

from __future__ import annotations

import datetime as dt
import heapq
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from tarragon.scheduling.cycle.scheduling_cycle import SchedulingCycle
from tarragon.scheduling.cycle.shares import QueueUsage
from tarragon.scheduling.state.candidates import Candidate
from tarragon.scheduling.state.memory import QueueEntry
from tarragon.scheduling.state.waiting_groups import WaitingGroups

_FEW = 20
"""If at most one in this many gangs has come or gone, these are inserted and removed; otherwise all are sorted."""


def in_queue_order(cycle: SchedulingCycle) -> Iterator[QueueEntry]:
    """Yield each waiting gang once. With fair shares, what one gang is given counts for the next."""
    line = by_seniority(cycle)
    if not cycle.snapshot.rules.is_fair_share:
        return iter(line)
    by_priority = groupby(line, key=attrgetter("gang.priority"))
    return (standing for _, equals in by_priority for standing in _by_share(list(equals), cycle.usage))


def by_seniority(cycle: SchedulingCycle) -> Sequence[QueueEntry]:
    """Return all waiting gangs in the order of `WaitingGang.sort_key`, whatever the fair shares."""
    if cycle.queue is None:
        cycle.queue = _updated(cycle)
    return cycle.queue


def in_groups(cycle: SchedulingCycle) -> Sequence[Sequence[Candidate]]:
    """Return the waiting gangs whose size can be chosen in groups of equal ones, the oldest first in each."""
    queue, memory, by_queue = by_seniority(cycle), cycle.memory, cycle.usage.is_tracked
    if memory.waiting_groups is None or memory.waiting_groups.by_queue != by_queue:
        memory.waiting_groups = WaitingGroups(sizable(cycle, queue), by_queue=by_queue)
    return memory.waiting_groups.in_order()


def sizable(cycle: SchedulingCycle, entries: Iterable[QueueEntry]) -> Iterator[Candidate]:
    """Yield the gangs that could run on some nodes and whose size can be chosen, as candidates."""
    for entry in entries:
        candidate = entry.candidate
        if candidate is None:
            candidate = entry.candidate = cycle.candidate(entry.gang)
        if candidate.takes_part and entry.shape.never_fits_reason is None:
            yield candidate


def overdue_by_seniority(cycle: SchedulingCycle) -> Iterator[QueueEntry]:
    """Yield the gangs that have waited very long: the first ones of each priority."""
    line, latest, start = by_seniority(cycle), cycle.overdue_if_queued_by, 0
    while start < len(line):
        end = bisect_right(line, -line[start].gang.priority, start, key=lambda entry: -entry.gang.priority)
        yield from line[start : bisect_right(line, latest, start, end, key=attrgetter("gang.queued_at"))]
        start = end


def _updated(cycle: SchedulingCycle) -> Sequence[QueueEntry]:
    """Update the order by `WaitingGang.sort_key`. A gang that has changed is another object of the same name."""
    waiting, line, by_name = cycle.snapshot.waiting, cycle.memory.queue, cycle.memory.entries_by_name
    added = [gang for gang in waiting if (entry := by_name.get(gang.name)) is None or entry.gang is not gang]
    removed = [by_name.pop(gang.name) for gang in added if gang.name in by_name]
    if len(by_name) + len(added) > len(waiting):
        names = {gang.name for gang in waiting}
        removed += [by_name.pop(name) for name in [name for name in by_name if name not in names]]
    new = [cycle.new_entry(gang) for gang in added]
    if cycle.memory.waiting_groups is not None:
        cycle.memory.waiting_groups.update(sizable(cycle, removed), sizable(cycle, new))
    by_name |= {standing.gang.name: standing for standing in new}
    if (len(removed) + len(new)) * _FEW > len(line):
        # Least significant key first: building thousands of key tuples takes longer than sorting three times.
        line[:] = sorted(by_name.values(), key=attrgetter("gang.name"))
        line.sort(key=attrgetter("gang.queued_at"))
        line.sort(key=attrgetter("gang.priority"), reverse=True)
    else:
        for standing in removed:
            del line[bisect_left(line, _order(standing), key=_order)]
        for standing in new:
            insort(line, standing, key=_order)
    return line


def _order(standing: QueueEntry) -> tuple[int, dt.datetime, str]:
    return standing.gang.sort_key


def _by_share(equals: Sequence[QueueEntry], shares: QueueUsage) -> Iterator[QueueEntry]:
    """Yield the gangs of equal priority: each time the first one of the queue with the lowest share."""
    lines: dict[str, list[QueueEntry]] = {}
    for standing in reversed(equals):
        lines.setdefault(standing.gang.queue, []).append(standing)
    heads = [(shares.dominant_share(queue), line[-1].gang.sort_key, queue) for queue, line in lines.items()]
    heapq.heapify(heads)
    while heads:
        share, order, queue = heapq.heappop(heads)
        now = shares.dominant_share(queue)
        if now != share:
            heapq.heappush(heads, (now, order, queue))
            continue
        line = lines[queue]
        yield line.pop()
        if line:
            heapq.heappush(heads, (shares.dominant_share(queue), line[-1].gang.sort_key, queue))
