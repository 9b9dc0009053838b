"""First in, first out with backfilling: gangs that fit pass those that do not, but must not delay starving ones."""

from __future__ import annotations

from collections.abc import Sequence

from tarragon.scheduling.actions.order import in_order
from tarragon.scheduling.actions.preempt import Preemption
from tarragon.scheduling.actions.reservations import Reservations
from tarragon.scheduling.actions.running import grow_to_wish, settle
from tarragon.scheduling.api.decision import AboutGang, Decision
from tarragon.scheduling.api.snapshot import Snapshot
from tarragon.scheduling.cycle.scheduling_cycle import Round
from tarragon.scheduling.state.memory import Memory


def backfill(snapshot: Snapshot, memory: Memory) -> Sequence[Decision]:
    """Start every gang that fits, in queue order, on resources that are not reserved. Running gangs grow if all have
    started.
    """
    cycle = Round(snapshot, memory)
    settle(cycle)
    preemption, reservations = Preemption(cycle), Reservations(cycle)
    all_started = True
    for standing, kind in reservations.asking(in_order(cycle)):
        gang = standing.gang
        decision: AboutGang | None = cycle.hopeless(standing, kind) or cycle.started(gang, kind)
        if decision is None:
            all_started = False
            decision = cycle.promised(gang, kind) or preemption.wait(gang, kind) or reservations.wait(standing, kind)
        cycle.add(decision)
    if all_started:
        grow_to_wish(cycle)
    return [*cycle.decisions, *reservations.again()]
