"""Divides the cluster among gangs by marginal gain: the size that each of them should have.

The steps between sizes are taken in the order of their value: the speed-up that a step adds for each part of the
cluster that it takes, weighted by how little of the gang's work is left. Rigid gangs have one step. What a gang would
have beyond its request counts with the lowest priority of all gangs.

No gang is passed by later ones for good. The oldest of those that have waited long goes before all others of its
priority with its smallest size, and so do the next ones as long as they hold a small part of the cluster together.
"""

from __future__ import annotations

import datetime as dt
import heapq
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

import numpy as np

from tarragon.job.model import ReplicaType
from tarragon.scheduling.actions.divisible_resources import DivisibleResources
from tarragon.scheduling.actions.queue_order import by_seniority, in_queue_order
from tarragon.scheduling.actions.running_gangs import is_scaled_up
from tarragon.scheduling.api.rules import bounded_timedelta
from tarragon.scheduling.api.snapshot import RunningGang, WaitingGang
from tarragon.scheduling.cycle.scheduling_cycle import SchedulingCycle
from tarragon.scheduling.state.candidates import Candidate
from tarragon.scheduling.state.memory import QueueEntry
from tarragon.scheduling.state.size_steps import Cost, SizeStep, total_cost

MIN_SPEEDUP = 1.05
"""A gang is not enlarged for less than this."""
RESTARTS_SAVED = 8.0
"""A gang is enlarged only if that saves this many times what the resize costs: estimates err, and sizes change again
before the end. On the public traces, means differ by 2 % between 8 and 11; with 6, jobs are resized half as often again
and wait no less.
"""
MIN_RUN_SECONDS = 300.0
"""A gang that has been admitted is not stopped for others of its priority for this long: a gang is never stopped twice
within it. One that restarts to resize keeps a new size for as long.
"""
MAX_PRIORITY = 2_000_001_000
"""No PriorityClass has a higher value."""
OVERDUE_SHARE = 1 / 8
"""The part of the cluster that gangs which have waited very long may hold together before all others. More would turn
a cluster with a long backlog into one that is first in, first out.
"""


_Bid = tuple[int, float, float, int, deque[Candidate], int, SizeStep]
"""A bid for the next step of a gang, or of the first of several equal gangs that wait. The lowest bid goes first:

1. the gang's priority, negated;
2. the share of its queue; zero without fair shares;
3. the value of the step, negated;
4. a number that is different for each bid;
5. the gangs;
6. the index of the step;
7. the step, from the size that the gang is to have so far, which may lie between two steps.

A plain tuple: there are several for each gang in each cycle.
"""


class TargetSizes:
    """The sizes that all gangs of one cycle should have; zero for those that should wait."""

    def __init__(self, cycle: SchedulingCycle) -> None:
        self._cycle = cycle
        self._now = cycle.snapshot.now
        self._sizes: dict[str, int] = {}
        self._recent_if_after = self._now - bounded_timedelta(MIN_RUN_SECONDS)
        self._cooled_down_if_before = self._now - bounded_timedelta(cycle.snapshot.rules.cool_down_seconds)
        resizable = list(self._resizable())
        self._left = DivisibleResources(cycle, np.array([index for index, _ in resizable], np.int64))
        self.running = [candidate for _, candidate in resizable]
        """The running gangs whose size is decided."""
        self._waiting = list(self._schedulable(in_queue_order(cycle)))
        self._serial = 0
        self._lowest_running = min((each.gang.priority for each in self.running), default=MAX_PRIORITY)
        self._lowest = min((each.gang.priority for each in self._waiting), default=self._lowest_running)
        self._lowest = min(self._lowest, self._lowest_running)
        self._take_for_overdue()
        self._take_for_unstoppable()
        lost = self._take_in_order(self._bids())
        too_dear = self._keep_where_growth_costs_more()
        self._undo_needless_shrinks()
        self._take_in_order(list(self._renewed(lost, without=too_dear)))
        self._keep_where_growth_costs_more()

    @property
    def starting(self) -> Sequence[Candidate]:
        """The waiting gangs that should start, in the order of the queue."""
        sizes = self._sizes
        return [candidate for candidate in self._waiting if sizes.get(candidate.gang.name)]

    def of(self, gang: WaitingGang | RunningGang) -> int:
        """Return the number of replicas of the elastic demand that the gang should have."""
        return self._sizes.get(gang.name, 0)

    def is_candidate(self, gang: WaitingGang) -> bool:
        """Whether the gang takes part: not if it has no sizes to choose from, or can start without any such replica."""
        return self._candidate(gang).takes_part

    def is_overdue(self, gang: WaitingGang | RunningGang) -> bool:
        """Whether the gang came so long ago that it may go before others."""
        return gang.queued_at is not None and gang.queued_at <= self._cycle.overdue_if_queued_by

    def _resizable(self) -> Iterator[tuple[int, Candidate]]:
        """Yield the running gangs whose size is decided, with their indexes in the snapshot."""
        changed = self._cycle.changed_gangs
        for index, gang in enumerate(self._cycle.snapshot.running):
            if gang.is_elastic and not gang.displaced and not gang.finished and gang.name not in changed:
                candidate = self._candidate(gang)
                if candidate.steps:
                    yield index, candidate

    def _candidate(self, gang: WaitingGang | RunningGang) -> Candidate:
        return self._cycle.memory.candidates.of(gang, self._cycle.nodes, self._cycle.memory.requests)

    def _bids(self) -> list[_Bid]:
        running = [self._first_bid(deque([candidate])) for candidate in self.running]
        return [bid for bid in running if bid is not None] + self._bids_of_waiting()

    def _bids_of_waiting(self) -> list[_Bid]:
        """Bid once for equal gangs: of ten thousand that wait, most are like others."""
        groups: dict[Hashable, deque[Candidate]] = {}
        sizes, is_tracked = self._sizes, self._cycle.usage.is_tracked
        for candidate in self._waiting:
            gang = candidate.gang
            group: Hashable = gang.name if gang.name in sizes else (candidate.group, gang.queue if is_tracked else "")
            equals = groups.get(group)
            if equals is None:
                groups[group] = deque([candidate])
            else:
                equals.append(candidate)
        bids = (self._first_bid(candidates) for candidates in groups.values())
        return [bid for bid in bids if bid is not None]

    def _schedulable(self, entries: Iterable[QueueEntry]) -> Iterator[Candidate]:
        """Yield the waiting gangs that could run on some nodes."""
        for entry in entries:
            candidate = entry.candidate
            if candidate is None:
                candidate = entry.candidate = self._candidate(entry.gang)
            if candidate.takes_part and entry.shape.never_fits_reason is None:
                yield candidate

    def _take_for_overdue(self) -> None:
        """Take the smallest size of the gangs that came first, if that was long ago."""
        latest = self._cycle.overdue_if_queued_by
        running = sorted((each for each in self.running if self.is_overdue(each.gang)), key=_seniority)
        waiting = self._schedulable(each for each in by_seniority(self._cycle) if each.gang.queued_at <= latest)
        share = 0.0
        for number, candidate in enumerate(heapq.merge(running, waiting, key=_seniority)):
            share += self._left.share_of(candidate.steps[0].cost)
            if share > OVERDUE_SHARE and number:
                return
            if self._left.holds(candidate, candidate.steps[0]) and self._left.could_start(candidate):
                self._take_smallest(candidate)

    def _take_for_unstoppable(self) -> None:
        for candidate in self.running:
            if self._may_not_be_stopped(candidate):
                self._take_smallest(candidate)

    def _take_in_order(self, bids: list[_Bid]) -> list[_Bid]:
        """Take the steps of highest value first. Return the bids for which too little is left."""
        lost: list[_Bid] = []
        left, is_fair_share = self._left, self._cycle.snapshot.rules.is_fair_share
        has_quotas = bool(self._cycle.usage.queues_with_quota)
        heapq.heapify(bids)
        while bids:
            priority, share, value, serial, candidates, position, step = bids[0]
            candidate = candidates[0]
            if is_fair_share and (now := left.dominant_share(candidate.gang.queue)) > share:
                heapq.heapreplace(bids, (priority, now, value, serial, candidates, position, step))
                continue
            if not left.holds(candidate, step):
                if has_quotas:
                    self._take_what_quota_permits(candidate, step)
                lost.append(heapq.heappop(bids))
            elif position == 0 and not left.could_start(candidate):
                heapq.heappop(bids)
            else:
                self._take(candidate, step)
                self._replace_first(bids)
        return lost

    def _replace_first(self, bids: list[_Bid]) -> None:
        """Replace the first bid, whose step was taken, by the gang's next one; the next equal gang bids as it did."""
        *_, candidates, position, _ = bids[0]
        if position == 0 and len(candidates) > 1:
            following = self._bid(deque([candidates.popleft()]), 1)
            if following is not None:
                heapq.heappush(bids, following)
            return
        following = self._bid(candidates, position + 1)
        if following is None:
            heapq.heappop(bids)
        else:
            heapq.heapreplace(bids, following)

    def _take(self, candidate: Candidate, step: SizeStep) -> None:
        self._left.take(candidate, step.cost)
        self._sizes[candidate.gang.name] = step.size

    def _take_what_quota_permits(self, candidate: Candidate, step: SizeStep) -> None:
        if self._cycle.usage.quota(candidate.gang.queue):
            part = self._left.largest_part(candidate, step, self.of(candidate.gang))
            if part is not None:
                self._take(candidate, part)

    def _first_bid(self, candidates: deque[Candidate]) -> _Bid | None:
        """Return the bid for the next step from the size that the gang is to have so far; None if there is none."""
        candidate = candidates[0]
        size = self._sizes.get(candidate.gang.name)
        if not size:
            return self._bid(candidates, 0)
        position = sum(step.size <= size for step in candidate.steps)
        bid = self._bid(candidates, position)
        if bid is None or (position and candidate.steps[position - 1].size == size):
            return bid
        priority, share, value, serial, _, _, step = bid
        rest = replace(step, cost=self._difference(candidate, size, step.size))
        return priority, share, value, serial, candidates, position, rest

    def _bid(self, candidates: deque[Candidate], position: int) -> _Bid | None:
        """Return the bid for a step; None after the last one."""
        candidate = candidates[0]
        if position >= len(candidate.steps):
            return None
        self._serial += 1
        step, gang = candidate.steps[position], candidate.gang
        is_requested = not position or candidate.steps[position - 1].size < candidate.demand.requested
        priority = gang.priority if is_requested else self._lowest
        if isinstance(gang, WaitingGang) and not gang.can_preempt:
            priority = min(priority, self._lowest_running)
        share = self._left.dominant_share(gang.queue) if self._cycle.usage.is_tracked else 0.0
        weight = candidate.held_weight if step.size <= candidate.size else candidate.weight
        return -priority, share, -weight * step.value, self._serial, candidates, position, step

    def _may_not_be_stopped(self, candidate: Candidate) -> bool:
        gang = candidate.gang
        if gang.name in self._sizes or not isinstance(gang, RunningGang):
            return False
        demand, rules = candidate.demand, self._cycle.snapshot.rules
        # A gang whose minimum was raised is not stopped because there is too little for that.
        is_below_minimum = candidate.size < demand.minimum
        # One that resizes by a restart may grow on request, and is rigid all the same.
        is_rigid = demand.minimum == demand.upper_limit
        is_protected = not rules.is_preemption_enabled or not demand.minimum or is_below_minimum or is_rigid
        return is_protected or self._is_recent(gang.admitted_at) or self._keeps_size(candidate)

    def _keeps_size(self, candidate: Candidate) -> bool:
        gang = candidate.gang
        return (
            isinstance(gang, RunningGang)
            and gang.resizes_by_restart
            and self._is_recent(gang.resized_at or gang.admitted_at)
        )

    def _is_recent(self, moment: dt.datetime | None) -> bool:
        return moment is not None and self._recent_if_after < moment <= self._now

    def _take_smallest(self, candidate: Candidate) -> None:
        """Give a gang its smallest size, or the one it has if that is smaller or has to stay."""
        first = candidate.steps[0]
        size = first.size
        if candidate.size:
            size = candidate.size if self._keeps_size(candidate) else min(candidate.size, size)
        self._left.take(candidate, first.cost if size == first.size else self._difference(candidate, 0, size))
        self._sizes[candidate.gang.name] = size

    def _renewed(self, lost: Sequence[_Bid], without: AbstractSet[str]) -> Iterator[_Bid]:
        """Yield the bids that may take what others have left after all: those of gangs that do not shrink."""
        for bid in lost:
            candidates = bid[4]
            first = candidates[0]
            if isinstance(first.gang, RunningGang) and (first.gang.name in without or self.of(first.gang) < first.size):
                continue
            if first.gang.name not in self._sizes:
                yield bid
                continue
            candidates.popleft()
            renewed = (self._first_bid(each) for each in (deque([first]), candidates) if each)
            yield from (each for each in renewed if each is not None)

    def _keep_where_growth_costs_more(self) -> AbstractSet[str]:
        """Undo growth that is not worth a resize. Return the names of the gangs that keep their size."""
        kept = set[str]()
        for candidate in self.running:
            gang, target = candidate.gang, self.of(candidate.gang)
            if target <= candidate.size or (isinstance(gang, RunningGang) and is_scaled_up(gang)):
                continue
            if self._is_cooling_down(gang) or not pays(candidate, candidate.work.curve.at(target)):
                self._set(candidate, candidate.size)
                kept.add(gang.name)
        return kept

    def _is_cooling_down(self, gang: WaitingGang | RunningGang) -> bool:
        if not isinstance(gang, RunningGang) or gang.resized_at is None:
            return False
        # A resize in the future: a clock was wrong.
        return self._cooled_down_if_before < gang.resized_at <= self._now

    def _undo_needless_shrinks(self) -> None:
        shrunk = [each for each in self.running if self.of(each.gang) < each.size]
        for candidate in sorted(shrunk, key=lambda each: (each.size - self.of(each.gang), each.gang.name)):
            more = self._difference(candidate, self.of(candidate.gang), candidate.size)
            if self._left.holds(candidate, SizeStep(candidate.size, more, 0.0)):
                self._set(candidate, candidate.size)

    def _set(self, candidate: Candidate, size: int) -> None:
        self._left.take(candidate, self._difference(candidate, self.of(candidate.gang), size))
        self._sizes[candidate.gang.name] = size

    def _difference(self, candidate: Candidate, before: int, after: int) -> Cost:
        """What a gang takes more with one size than with another."""
        others: dict[ReplicaType, int] = (
            {} if before or not after else {demand.type: demand.requested for demand in candidate.gang.demands}
        )
        counts = {**others, candidate.demand.type: after - before}
        return total_cost(candidate.gang.demands, counts, self._cycle.memory.requests)


def _seniority(candidate: Candidate) -> tuple[int, dt.datetime | None, str]:
    return -candidate.gang.priority, candidate.gang.queued_at, candidate.gang.name


def pays(candidate: Candidate, speed: float) -> bool:
    """Whether the gang gains enough by a resize that gives it this speed."""
    if not candidate.speed:
        return True
    rest = candidate.work.remaining
    saved = rest / candidate.speed - rest / speed
    return speed >= candidate.speed * MIN_SPEEDUP and saved >= candidate.work.restart_seconds * RESTARTS_SAVED


def by_size(candidates: Sequence[Candidate], targets: TargetSizes) -> Sequence[Candidate]:
    """Sort candidates so that they pack well: overdue gangs first, then the largest."""
    return sorted(
        candidates, key=lambda each: (not targets.is_overdue(each.gang), -targets.of(each.gang), each.gang.name)
    )
