"""First in, first out: no gang passes one that could run once others have ended."""

from __future__ import annotations

from collections.abc import Sequence

from tarragon.scheduling.actions.preempt import Preemption
from tarragon.scheduling.actions.queue_order import in_queue_order
from tarragon.scheduling.actions.running_gangs import grow_to_requested, settle_running_gangs
from tarragon.scheduling.api.decision import Decision
from tarragon.scheduling.api.snapshot import Snapshot
from tarragon.scheduling.cycle.scheduling_cycle import SchedulingCycle
from tarragon.scheduling.explain import wait_messages
from tarragon.scheduling.state.memory import Memory


def fifo(snapshot: Snapshot, memory: Memory) -> Sequence[Decision]:
    """Start gangs in queue order up to the first that has to wait. Running gangs grow only if none has to.

    Gangs that can never fit, need unavailable nodes or would exceed the quota of their namespace do not block others.
    """
    cycle = SchedulingCycle(snapshot, memory)
    settle_running_gangs(cycle)
    preemption = Preemption(cycle)
    all_started = True
    for standing in in_queue_order(cycle):
        gang, kind = standing.gang, cycle.shape_states[standing.shape]
        hopeless = cycle.defer_unschedulable(standing, kind)
        if hopeless is not None:
            cycle.add(hopeless)
        elif not all_started:
            cycle.add(standing.defer(wait_messages.JOB_AHEAD))
        elif (place := cycle.try_admit(gang, kind)) is not None:
            cycle.add(place)
        else:
            all_started = False
            cycle.add(
                cycle.try_reserve_releasing(gang, kind)
                or preemption.preempt_for(gang, kind)
                or cycle.defer_for_resources(standing, kind)
            )
    if all_started:
        grow_to_requested(cycle)
    return cycle.decisions
