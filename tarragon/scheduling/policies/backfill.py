"""First in, first out with backfilling: gangs that fit pass those that do not, but must not delay starving ones."""

from __future__ import annotations

from collections.abc import Sequence

from tarragon.scheduling.actions.preempt import Preemption
from tarragon.scheduling.actions.queue_order import in_queue_order
from tarragon.scheduling.actions.reservations import NodeReservations
from tarragon.scheduling.actions.running_gangs import grow_to_requested, settle_running_gangs
from tarragon.scheduling.api.decision import Decision, GangDecision
from tarragon.scheduling.api.snapshot import Snapshot
from tarragon.scheduling.cycle.scheduling_cycle import SchedulingCycle
from tarragon.scheduling.state.memory import Memory


def backfill(snapshot: Snapshot, memory: Memory) -> Sequence[Decision]:
    """Start every gang that fits, in queue order, on resources that are not reserved. Running gangs grow if all have
    started.
    """
    cycle = SchedulingCycle(snapshot, memory)
    settle_running_gangs(cycle)
    preemption, reservations = Preemption(cycle), NodeReservations(cycle)
    all_started = True
    for standing, kind in reservations.undecided(in_queue_order(cycle)):
        gang = standing.gang
        decision: GangDecision | None = cycle.defer_unschedulable(standing, kind) or cycle.try_admit(gang, kind)
        if decision is None:
            all_started = False
            decision = (
                cycle.try_reserve_releasing(gang, kind)
                or preemption.preempt_for(gang, kind)
                or reservations.defer(standing, kind)
            )
        cycle.add(decision)
    if all_started:
        grow_to_requested(cycle)
    return [*cycle.decisions, *reservations.requeue()]
