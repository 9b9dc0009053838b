"""First in, first out: no gang passes one that could run once others have ended."""

from __future__ import annotations

from collections.abc import Sequence

from tarragon.scheduling.actions.order import in_order
from tarragon.scheduling.actions.preempt import Preemption
from tarragon.scheduling.actions.running import grow_to_wish, settle
from tarragon.scheduling.api.decision import BEHIND_OTHERS, Decision
from tarragon.scheduling.api.snapshot import Snapshot
from tarragon.scheduling.cycle.scheduling_cycle import Round
from tarragon.scheduling.explain import wait_messages
from tarragon.scheduling.state.memory import Memory


def fifo(snapshot: Snapshot, memory: Memory) -> Sequence[Decision]:
    """Start gangs in queue order up to the first that has to wait. Running gangs grow only if none has to.

    Gangs that can never fit, need unavailable nodes or would exceed the quota of their namespace do not block others.
    """
    cycle = Round(snapshot, memory)
    settle(cycle)
    preemption = Preemption(cycle)
    all_started = True
    for standing in in_order(cycle):
        gang, kind = standing.gang, cycle.kinds[standing.shape]
        hopeless = cycle.hopeless(standing, kind)
        if hopeless is not None:
            cycle.add(hopeless)
        elif not all_started:
            cycle.add(standing.told((BEHIND_OTHERS, wait_messages.BEHIND)))
        elif (place := cycle.started(gang, kind)) is not None:
            cycle.add(place)
        else:
            all_started = False
            cycle.add(cycle.promised(gang, kind) or preemption.wait(gang, kind) or cycle.refused(standing, kind))
    if all_started:
        grow_to_wish(cycle)
    return cycle.decisions
