"""Divides the cluster by marginal gain: gangs with little work left, and those that use their devices well, get more.

Each cycle computes the size that every gang should have, shrinks or stops the elastic ones that have more, and starts
or enlarges others on what is free. Rigid gangs take part with one size, and stop for higher priorities only. For gangs
that have waited very long and still find no place, nodes are reserved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import chain

from tarragon.scheduling.actions.displaced_replicas import make_room_for_displaced
from tarragon.scheduling.actions.preempt import Preemption
from tarragon.scheduling.actions.queue_order import in_queue_order
from tarragon.scheduling.actions.reservations import NodeReservations
from tarragon.scheduling.actions.resize_to_target import enlarge_to_target, move_together, shrink_to_targets
from tarragon.scheduling.actions.running_gangs import grow_other_demands, settle_running_gangs
from tarragon.scheduling.actions.shrink_for_starving import Shrinking
from tarragon.scheduling.actions.target_sizes import TargetSizes, by_size
from tarragon.scheduling.api.decision import Decision, GangDecision, RequeueAt
from tarragon.scheduling.api.rules import bounded_timedelta
from tarragon.scheduling.api.snapshot import Snapshot, WaitingGang
from tarragon.scheduling.cycle.scheduling_cycle import SchedulingCycle, is_known_to_lack
from tarragon.scheduling.state.candidates import Candidate, seniority
from tarragon.scheduling.state.memory import Memory

INTERVAL_SECONDS = 60.0
"""How often sizes are compared while nothing else changes. Pollux (OSDI'21) does so once a minute."""


def elastic(snapshot: Snapshot, memory: Memory) -> Sequence[Decision]:
    """Give all gangs the sizes at which the cluster finishes jobs soonest, as far as is known."""
    cycle = SchedulingCycle(snapshot, memory)
    settle_running_gangs(cycle)
    shrinking, preemption, reservations = Shrinking(cycle), Preemption(cycle), NodeReservations(cycle)
    make_room_for_displaced(cycle, shrinking, reservations)
    grow_other_demands(cycle)
    targets = TargetSizes(cycle)
    is_releasing = shrink_to_targets(cycle, targets)
    decided = set(_start_and_enlarge(cycle, targets))
    decided |= set(_shrink_for_starving(cycle, targets, shrinking, decided))
    if not is_releasing:
        move_together(cycle, targets)
    undecided = (entry for entry in in_queue_order(cycle) if entry.gang.name not in decided)
    for standing, kind in reservations.undecided(undecided):
        gang = standing.gang
        unschedulable = cycle.defer_unschedulable(standing, kind)
        if unschedulable:
            cycle.add(unschedulable)
            continue
        decision: GangDecision | None = None
        if not targets.is_candidate(gang):
            decision = cycle.try_admit(gang, kind) or cycle.try_reserve_releasing(gang, kind)
        cycle.add(decision or preemption.preempt_for(gang, kind) or reservations.defer(standing, kind))
    return [*cycle.decisions, *reservations.requeue(), *_requeue(cycle, targets)]


def _start_and_enlarge(cycle: SchedulingCycle, targets: TargetSizes) -> Iterator[str]:
    """Give gangs their targets where that much is free. Yield the names of waiting gangs that got a decision."""
    growing = [candidate for candidate in targets.running if targets.of(candidate.gang) > candidate.size]
    for candidate in by_size([*chain.from_iterable(targets.starting), *growing], targets):
        gang, size = candidate.gang, targets.of(candidate.gang)
        if not isinstance(gang, WaitingGang):
            enlarge_to_target(candidate, size, cycle)
            continue
        entry = cycle.memory.entries_by_name[gang.name]
        kind = cycle.shape_states[entry.shape]
        decision: GangDecision | None = cycle.defer_unschedulable(entry, kind)
        if decision is None and kind.has_no_future_room and is_known_to_lack(kind, cycle.free):
            continue  # As an equal one before it. There are more than a thousand of these.
        if decision is None and not is_known_to_lack(kind, cycle.free):
            decision = cycle.try_admit(_at_size(gang, candidate, size), kind)
        decision = decision or cycle.try_reserve_releasing(gang, kind)
        if decision is not None:
            cycle.add(decision)
            yield gang.name


def _shrink_for_starving(
    cycle: SchedulingCycle, targets: TargetSizes, shrinking: Shrinking, decided: AbstractSet[str]
) -> Iterator[str]:
    """Let others shrink for starving gangs that should start: what is free for them is in too many places. Yield the
    names of those that got a decision.
    """
    candidates = (each for each in chain.from_iterable(targets.starting) if each.gang.name not in decided)
    starving = [each for each in candidates if isinstance(each.gang, WaitingGang) and cycle.is_starving(each.gang)]
    for candidate in sorted(starving, key=seniority):
        gang = candidate.gang
        kind = cycle.shape_states[cycle.memory.entries_by_name[gang.name].shape]
        decision = shrinking.wait(gang, kind) if isinstance(gang, WaitingGang) else None
        if decision is not None:
            cycle.add(decision)
            yield gang.name


def _at_size(gang: WaitingGang, candidate: Candidate, size: int) -> WaitingGang:
    """Return the gang as if it had requested this size."""
    demands = [
        replace(each, requested=size, maximum=max(size, each.maximum)) if each is candidate.demand else each
        for each in gang.demands
    ]
    return replace(gang, demands=demands)


def _requeue(cycle: SchedulingCycle, targets: TargetSizes) -> Iterator[RequeueAt]:
    if targets.running:
        yield RequeueAt(cycle.snapshot.now + bounded_timedelta(INTERVAL_SECONDS))
