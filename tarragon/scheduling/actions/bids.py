"""The bids of gangs for their next steps, which are taken in the order of their value."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import count

from tarragon.scheduling.actions.planned_sizes import PlannedSizes
from tarragon.scheduling.api.snapshot import RunningGang
from tarragon.scheduling.cycle.scheduling_cycle import SchedulingCycle
from tarragon.scheduling.state.candidates import Candidate
from tarragon.scheduling.state.size_steps import SizeStep

MAX_PRIORITY = 2_000_001_000
"""No PriorityClass has a higher value."""

Bid = tuple[int, float, float, int, Candidate, Iterator[Candidate], int, SizeStep]
"""A bid for the next step of a gang. The lowest bid goes first:

1. the gang's priority, negated;
2. the share of its queue; zero without fair shares;
3. the value of the step, negated;
4. a number that is different for each bid;
5. the gang;
6. equal gangs that wait behind it, which bid as it does once it has its first step;
7. the index of the step;
8. the step, from the size that the gang is to have so far, which may lie between two steps.

A plain tuple: there are several for each gang in each cycle.
"""
_NO_OTHERS: Iterator[Candidate] = iter(())


class Bidding:
    """The bids of one cycle. Bids for what a gang would have beyond its request have the lowest priority of all."""

    def __init__(
        self,
        cycle: SchedulingCycle,
        planned: PlannedSizes,
        running: Sequence[Candidate],
        groups: Sequence[Sequence[Candidate]],
    ) -> None:
        self._cycle = cycle
        self._planned = planned
        self._left = planned.left
        self._running = running
        self._groups = groups
        self._serial = count()
        self._lowest_running = min((each.gang.priority for each in running), default=MAX_PRIORITY)
        self._lowest = min((group[0].gang.priority for group in groups), default=self._lowest_running)
        self._lowest = min(self._lowest, self._lowest_running)
        self._has_quotas = bool(cycle.usage.queues_with_quota)

    def all(self) -> list[Bid]:
        """Return a bid for each running gang and for each group of equal ones that wait."""
        planned = self._planned
        bids = [self._first(candidate) for candidate in self._running]
        starting = {candidate.group for candidate in planned.starting}
        for group in self._groups:
            others = iter(group)
            if starting and group[0].group in starting:
                bids += [self._first(candidate) for candidate in group if planned.has(candidate.gang)]
                others = iter([candidate for candidate in group if not planned.has(candidate.gang)])
            for candidate in others:
                bids.append(self._next(candidate, others, 0))
                break
        return [bid for bid in bids if bid is not None]

    def take_in_order(self, bids: list[Bid]) -> list[Bid]:
        """Take the steps of highest value first. Return the bids for which too little is left."""
        lost: list[Bid] = []
        left, planned, is_fair_share = self._left, self._planned, self._cycle.snapshot.rules.is_fair_share
        heapq.heapify(bids)
        while bids:
            priority, share, value, serial, candidate, others, position, step = bids[0]
            if is_fair_share and (now := left.dominant_share(candidate.gang.queue)) > share:
                heapq.heapreplace(bids, (priority, now, value, serial, candidate, others, position, step))
            elif not left.holds(candidate, step):
                if self._has_quotas:
                    self._take_what_quota_permits(candidate, step)
                lost.append(heapq.heappop(bids))
            elif position == 0 and not left.could_start(candidate):
                heapq.heappop(bids)
            else:
                planned.take(candidate, step)
                self._replace_first(bids)
        return lost

    def renewed(self, lost: Iterable[Bid], without: AbstractSet[str]) -> Iterator[Bid]:
        """Yield the bids that may take what others have left after all: those of gangs that do not shrink."""
        planned = self._planned
        for bid in lost:
            candidate, others = bid[4], bid[5]
            gang, size = candidate.gang, planned.of(candidate.gang)
            if isinstance(gang, RunningGang) and (gang.name in without or size < candidate.size):
                continue
            if not planned.has(gang):
                if self._may_win(bid):
                    yield bid
                continue
            first = self._first(candidate)
            if first is not None and self._may_win(first):
                yield first
            for other in others:
                following = self._next(other, others, 0)
                if following is not None and self._may_win(following):
                    yield following
                break

    def _may_win(self, bid: Bid) -> bool:
        """Whether enough is left for the bid: nothing is given back until its turn. A quota may permit a part."""
        return self._has_quotas or self._left.holds(bid[4], bid[7])

    def _replace_first(self, bids: list[Bid]) -> None:
        """Replace the first bid, whose step was taken, by the gang's next one; the next equal gang bids as it did."""
        priority, share, value, serial, candidate, others, position, step = bids[0]
        following = self._next(candidate, _NO_OTHERS, position + 1)
        other = next(others, None)
        if other is not None:
            heapq.heapreplace(bids, (priority, share, value, serial, other, others, position, step))
            if following is not None:
                heapq.heappush(bids, following)
        elif following is not None:
            heapq.heapreplace(bids, following)
        else:
            heapq.heappop(bids)

    def _take_what_quota_permits(self, candidate: Candidate, step: SizeStep) -> None:
        if self._cycle.usage.quota(candidate.gang.queue):
            part = self._left.largest_part(candidate, step, self._planned.of(candidate.gang))
            if part is not None:
                self._planned.take(candidate, part)

    def _first(self, candidate: Candidate) -> Bid | None:
        """Return the bid for the next step from the size that the gang is to have so far; None if there is none."""
        size = self._planned.of(candidate.gang)
        if not size:
            return self._next(candidate, _NO_OTHERS, 0)
        position = sum(step.size <= size for step in candidate.steps)
        bid = self._next(candidate, _NO_OTHERS, position)
        if bid is None or (position and candidate.steps[position - 1].size == size):
            return bid
        priority, share, value, serial, _, others, _, step = bid
        rest = replace(step, cost=self._planned.cost_between(candidate, size, step.size))
        return priority, share, value, serial, candidate, others, position, rest

    def _next(self, candidate: Candidate, others: Iterator[Candidate], position: int) -> Bid | None:
        """Return the bid for a step; None after the last one."""
        if position >= len(candidate.steps):
            return None
        step, gang = candidate.steps[position], candidate.gang
        priority = self._lowest if step.is_beyond_request else gang.priority
        if priority > self._lowest_running and not candidate.can_preempt:
            priority = self._lowest_running
        share = self._left.dominant_share(gang.queue) if self._cycle.usage.is_tracked else 0.0
        weight = candidate.held_weight if step.size <= candidate.size else candidate.weight
        return -priority, share, -weight * step.value, next(self._serial), candidate, others, position, step
