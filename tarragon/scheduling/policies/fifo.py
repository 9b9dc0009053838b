"""First in, first out: nobody passes a gang that could run once others have ended."""

from __future__ import annotations

from collections.abc import Sequence

from tarragon.scheduling.actions.order import in_order
from tarragon.scheduling.actions.preempt import Preemption
from tarragon.scheduling.actions.running import grow_to_wish, settle
from tarragon.scheduling.api.decision import BEHIND_OTHERS, Decision
from tarragon.scheduling.api.snapshot import Snapshot
from tarragon.scheduling.cycle.scheduling_cycle import Round
from tarragon.scheduling.explain import wait_messages


def fifo(snapshot: Snapshot) -> Sequence[Decision]:
    """Gangs start in their order; the first one that has to wait is waited for, and running ones don't grow then.

    A gang that could not run on the empty cluster blocks nobody, nor does one that needs nodes which are away, or one
    whose namespace holds all that it may.
    """
    made = Round(snapshot)
    settle(made)
    preemption = Preemption(made)
    is_open = True
    for standing in in_order(made):
        gang, kind = standing.gang, made.kinds[standing.shape]
        hopeless = made.hopeless(standing, kind)
        if hopeless is not None:
            made.add(hopeless)
        elif not is_open:
            made.add(standing.told((BEHIND_OTHERS, wait_messages.BEHIND)))
        elif (place := made.started(gang, kind)) is not None:
            made.add(place)
        else:
            is_open = False
            made.add(made.promised(gang, kind) or preemption.wait(gang, kind) or made.refused(standing, kind))
    if is_open:
        grow_to_wish(made)
    return made.decisions
