"""The bids of gangs for their next steps, which are taken in the order of their value."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import count

from tarragon.scheduling.actions.planned_sizes import PlannedSizes
from tarragon.scheduling.api.snapshot import RunningGang, WaitingGang
from tarragon.scheduling.cycle.scheduling_cycle import SchedulingCycle
from tarragon.scheduling.state.candidates import Candidate
from tarragon.scheduling.state.size_steps import SizeStep

MAX_PRIORITY = 2_000_001_000
"""No PriorityClass has a higher value."""

Bid = tuple[int, float, float, int, Sequence[Candidate], int, int, SizeStep]
"""A bid of equal gangs for their next step. The lowest bid goes first:

1. the gangs' priority, negated;
2. the share of their queue; zero without fair shares;
3. the value of the step, negated;
4. a number that is different for each bid;
5. the gangs: one that runs, or all that are equal and wait, the oldest first;
6. the index of the first of them that still bids;
7. the index of the step;
8. the step, from the size that the gang is to have so far, which may lie between two steps.

A plain tuple: there are thousands in each cycle.
"""


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
        self._is_tracked = cycle.usage.is_tracked
        self._has_quotas = bool(cycle.usage.queues_with_quota)

    def initial(self) -> list[Bid]:
        """Return a bid for each running gang and for each group of equal ones that wait."""
        planned = self._planned
        bids = [self._first_bid(candidate) for candidate in self._running]
        starting = {candidates[0].group for candidates in planned.starting}
        for group in self._groups:
            others = group
            if starting and group[0].group in starting:
                bids += [self._first_bid(candidate) for candidate in group if planned.has(candidate.gang)]
                others = [candidate for candidate in group if not planned.has(candidate.gang)]
            if others:
                bids.append(self._next_bid(others, 0))
        return [bid for bid in bids if bid is not None]

    def take_in_order(self, bids: list[Bid]) -> list[Bid]:
        """Take the steps of highest value first. Return the bids for which too little is left."""
        lost: list[Bid] = []
        planned, left, is_tracked = self._planned, self._left, self._is_tracked
        is_fair_share = self._cycle.snapshot.rules.is_fair_share
        heapq.heapify(bids)
        while bids:
            priority, share, value, serial, candidates, start, position, step = bids[0]
            first = candidates[start]
            if is_fair_share and (now := left.dominant_share(first.gang.queue)) > share:
                heapq.heapreplace(bids, (priority, now, value, serial, candidates, start, position, step))
                continue
            # What one gang takes counts for the next one of its queue; and its own next step may be worth more.
            one_by_one = is_tracked or step.is_dearer_than_next
            number = left.times(first, step, 1 if one_by_one else len(candidates) - start)
            if not number:
                if self._has_quotas:
                    self._take_what_quota_permits(first, step)
                lost.append(heapq.heappop(bids))
            elif position == 0 and not first.size and not left.could_start(first):
                heapq.heappop(bids)
            else:
                taken = candidates if number == len(candidates) else candidates[start : start + number]
                planned.take(taken, step)
                self._replace_first(bids, taken)
        return lost

    def renewed(self, lost: Iterable[Bid], without: AbstractSet[str]) -> Iterator[Bid]:
        """Yield the bids that may take what others have left after all: those of gangs that do not shrink."""
        for bid in lost:
            _, _, _, _, candidates, start, _, _ = bid
            candidate = candidates[start]
            gang, size = candidate.gang, self._planned.of(candidate.gang)
            if isinstance(gang, RunningGang) and (gang.name in without or size < candidate.size):
                continue
            for renewed in self._renewed(bid):
                *_, step = renewed
                # Nothing is given back until it is the bid's turn. A quota may permit a part.
                if self._has_quotas or self._left.holds(candidate, step):
                    yield renewed

    def _renewed(self, bid: Bid) -> Iterator[Bid]:
        """Yield the bid from the size that the gang is to have by now, and that of the equal ones after it."""
        priority, share, value, serial, candidates, start, position, step = bid
        candidate = candidates[start]
        if not self._planned.has(candidate.gang):
            yield bid
            return
        if isinstance(candidate.gang, WaitingGang) and not self._is_tracked:
            yield priority, share, value, next(self._serial), candidates, start, position, step
            return
        first = self._first_bid(candidate)
        if first is not None:
            yield first
        if start + 1 < len(candidates):
            yield priority, share, value, serial, candidates, start + 1, position, step

    def _replace_first(self, bids: list[Bid], taken: Sequence[Candidate]) -> None:
        """Replace the first bid, of which these gangs have taken their step, by those that are left and the next."""
        priority, share, value, serial, candidates, start, position, step = bids[0]
        following = self._next_bid(taken, position + 1)
        end = start + len(taken)
        if end < len(candidates):
            heapq.heapreplace(bids, (priority, share, value, serial, candidates, end, position, step))
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
                self._planned.take([candidate], part)

    def _first_bid(self, candidate: Candidate) -> Bid | None:
        """Return the bid for the next step from the size that the gang is to have so far; None if there is none."""
        size = self._planned.of(candidate.gang)
        if not size:
            return self._next_bid([candidate], 0)
        position = sum(step.size <= size for step in candidate.steps)
        bid = self._next_bid([candidate], position)
        if bid is None or (position and candidate.steps[position - 1].size == size):
            return bid
        priority, share, value, serial, candidates, start, _, step = bid
        rest = replace(step, cost=self._planned.cost_between(candidate, size, step.size))
        return priority, share, value, serial, candidates, start, position, rest

    def _next_bid(self, candidates: Sequence[Candidate], position: int) -> Bid | None:
        """Return the bid of equal gangs for a step; None after the last one."""
        candidate = candidates[0]
        if position >= len(candidate.steps):
            return None
        step, gang = candidate.steps[position], candidate.gang
        priority = self._lowest if step.is_beyond_request else gang.priority
        if priority > self._lowest_running and not candidate.can_preempt:
            priority = self._lowest_running
        share = self._left.dominant_share(gang.queue) if self._is_tracked else 0.0
        weight = candidate.held_weight if step.size <= candidate.size else candidate.weight
        return -priority, share, -weight * step.value, next(self._serial), candidates, 0, position, step
