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
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from tarragon.job.model import Replica
from tarragon.scheduling.actions.bids import Bidding
from tarragon.scheduling.actions.divisible_resources import DivisibleResources
from tarragon.scheduling.actions.planned_sizes import PlannedSizes
from tarragon.scheduling.actions.queue_order import in_groups, overdue_by_seniority, sizable
from tarragon.scheduling.actions.running_gangs import is_scaled_up
from tarragon.scheduling.api.rules import bounded_timedelta
from tarragon.scheduling.api.snapshot import RunningGang, WaitingGang
from tarragon.scheduling.cycle.scheduling_cycle import SchedulingCycle
from tarragon.scheduling.state.candidates import Candidate, seniority
from tarragon.scheduling.state.size_steps import SizeStep, total_cost

MIN_SPEEDUP = 1.05
"""A gang is not enlarged for less than this."""
RESTARTS_SAVED = 7.0
"""A gang is enlarged only if that saves this many times what the resize costs: estimates err, and sizes change again
before the end. On the public traces, means differ by 2 % between 6 and 11, in either direction; with less, jobs are
resized more often.
"""
MIN_RUN_SECONDS = 300.0
"""A gang that has been admitted is not stopped for others of its priority for this long: a gang is never stopped twice
within it. One that restarts to resize keeps a new size for as long.
"""
OVERDUE_SHARE = 1 / 8
"""The part of the cluster that gangs which have waited very long may hold together before all others. More would turn
a cluster with a long backlog into one that is first in, first out.
"""


class TargetSizes:
    """The sizes that all gangs of one cycle should have; zero for those that should wait."""

    def __init__(self, cycle: SchedulingCycle) -> None:
        self._cycle = cycle
        self._now = cycle.snapshot.now
        self._recent_if_after = self._now - bounded_timedelta(MIN_RUN_SECONDS)
        self._cooled_down_if_before = self._now - bounded_timedelta(cycle.snapshot.rules.cool_down_seconds)
        resizable = list(self._resizable())
        self.running = [candidate for _, candidate in resizable]
        """The running gangs whose size is decided."""
        self._left = DivisibleResources(cycle, np.array([index for index, _ in resizable], np.int64))
        self._planned = PlannedSizes(self._left, cycle.memory.requests)
        self._take_uncounted()
        self._take_for_overdue()
        self._take_for_unstoppable()
        bidding = Bidding(cycle, self._planned, self.running, in_groups(cycle))
        lost = bidding.take_in_order(bidding.initial())
        too_dear = self._keep_where_growth_costs_more()
        self._undo_needless_shrinks()
        bidding.take_in_order(list(bidding.renewed(lost, without=too_dear)))
        self._keep_where_growth_costs_more()

    @property
    def starting(self) -> Sequence[Sequence[Candidate]]:
        """The waiting gangs that should start, in groups of equal ones."""
        return self._planned.starting

    def of(self, gang: WaitingGang | RunningGang) -> int:
        """Return the number of replicas of the elastic demand that the gang should have."""
        return self._planned.of(gang)

    def is_candidate(self, gang: WaitingGang) -> bool:
        """Whether the gang takes part: not if it has no sizes to choose from, or can start without any such replica."""
        return self._cycle.candidate(gang).takes_part

    def is_overdue(self, gang: WaitingGang | RunningGang) -> bool:
        """Whether the gang came so long ago that it may go before others."""
        return gang.queued_at is not None and gang.queued_at <= self._cycle.overdue_if_queued_by

    def _resizable(self) -> Iterator[tuple[int, Candidate]]:
        """Yield the running gangs whose size is decided, with their indexes in the snapshot."""
        changed = self._cycle.changed_gangs
        for index, gang in enumerate(self._cycle.snapshot.running):
            if gang.is_elastic and not gang.displaced and not gang.finished and gang.name not in changed:
                candidate = self._cycle.candidate(gang)
                if candidate.steps:
                    yield index, candidate

    def _take_uncounted(self) -> None:
        """Take what gangs keep at any size that their steps do not count, such as parameter servers without which they
        could start. What they hold on nodes that accept no pods for now costs nothing, and is kept.
        """
        for candidate in self.running:
            if candidate.uncounted:
                cost = total_cost(candidate.gang.demands, candidate.uncounted, self._cycle.memory.requests)
                self._left.take(candidate, cost)
            if candidate.on_unavailable:
                self._take_smallest(candidate)

    def _take_for_overdue(self) -> None:
        """Take the smallest size of the gangs that came first, if that was long ago."""
        running = sorted((each for each in self.running if self.is_overdue(each.gang)), key=seniority)
        waiting = sizable(self._cycle, overdue_by_seniority(self._cycle))
        share = 0.0
        for number, candidate in enumerate(heapq.merge(running, waiting, key=seniority)):
            share += self._left.share_of(candidate.steps[0].cost)
            if share > OVERDUE_SHARE and number:
                return
            if self._planned.has(candidate.gang):
                continue
            if self._left.holds(candidate, candidate.steps[0]) and self._left.could_start(candidate):
                self._take_smallest(candidate)

    def _take_for_unstoppable(self) -> None:
        may_stop_any = self._cycle.snapshot.rules.is_preemption_enabled
        for candidate in self.running:
            may_stop = may_stop_any and candidate.is_stoppable and not self._is_too_early_to_stop(candidate)
            if not may_stop and not self._planned.has(candidate.gang):
                self._take_smallest(candidate)

    def _is_too_early_to_stop(self, candidate: Candidate) -> bool:
        gang = candidate.gang
        return isinstance(gang, RunningGang) and (self._is_recent(gang.admitted_at) or self._keeps_size(candidate))

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
        size = candidate.steps[0].size
        if candidate.size:
            least = max(size, len(fixed_replicas(candidate))) if candidate.on_unavailable else size
            size = candidate.size if self._keeps_size(candidate) else min(candidate.size, least)
        self._planned.take_all(candidate, size)

    def _keep_where_growth_costs_more(self) -> AbstractSet[str]:
        """Undo growth that is not worth a resize. Return the names of the gangs that keep their size."""
        kept = set[str]()
        for candidate in self.running:
            gang, target = candidate.gang, self.of(candidate.gang)
            if target <= candidate.size or (isinstance(gang, RunningGang) and is_scaled_up(gang)):
                continue
            if self._is_cooling_down(gang) or not pays(candidate, candidate.work.curve.at(target)):
                self._planned.resize(candidate, candidate.size)
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
            more = self._planned.cost_between(candidate, self.of(candidate.gang), candidate.size)
            if self._left.holds(candidate, SizeStep(candidate.size, more, 0.0)):
                self._planned.resize(candidate, candidate.size)


def fixed_replicas(candidate: Candidate) -> Sequence[Replica]:
    """Return the replicas of the elastic demand that a gang keeps at any size: the first one, and those on nodes that
    accept no pods for now. A gang that restarts to resize has no gaps in its indexes.
    """
    gang, kind = candidate.gang, candidate.demand.type
    if not isinstance(gang, RunningGang):
        return []
    ordered = sorted(replica for replica in gang.nodes if replica.type == kind)
    fixed = [number for number, replica in enumerate(ordered) if number == 0 or replica in candidate.on_unavailable]
    return ordered[: fixed[-1] + 1] if fixed and gang.resizes_by_restart else [ordered[number] for number in fixed]


def pays(candidate: Candidate, speed: float) -> bool:
    """Whether the gang gains enough by a resize that gives it this speed."""
    if not candidate.speed:
        return True
    rest = candidate.work.remaining
    saved = rest / candidate.speed - rest / speed
    return speed >= candidate.speed * MIN_SPEEDUP and saved >= candidate.work.restart_seconds * RESTARTS_SAVED


def by_size(candidates: Sequence[Candidate], targets: TargetSizes) -> Sequence[Candidate]:
    """Sort candidates of each priority so that they pack well: overdue gangs first, then the largest. Gangs of lower
    priority would otherwise take what others have been preempted for.
    """

    def key(candidate: Candidate) -> tuple[int, bool, int, str]:
        gang = candidate.gang
        return -gang.priority, not targets.is_overdue(gang), -targets.of(gang), gang.name

    return sorted(candidates, key=key)
