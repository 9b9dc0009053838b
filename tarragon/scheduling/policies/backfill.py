"""First in, first out, but who fits passes who does not: until that one is aged, and then only without delaying it."""

from __future__ import annotations

from collections.abc import Sequence

from tarragon.scheduling.actions.order import in_order
from tarragon.scheduling.actions.preempt import Preemption
from tarragon.scheduling.actions.reservations import Reservations
from tarragon.scheduling.actions.running import grow_to_wish, settle
from tarragon.scheduling.api.decision import AboutGang, Decision
from tarragon.scheduling.api.snapshot import Snapshot
from tarragon.scheduling.cycle.scheduling_cycle import Round


def backfill(snapshot: Snapshot) -> Sequence[Decision]:
    """Every gang that fits starts, in their order, on what is not kept for another; running ones grow if all did."""
    made = Round(snapshot)
    settle(made)
    preemption, reservations = Preemption(made), Reservations(made)
    all_started = True
    for standing, kind in reservations.asking(in_order(made)):
        gang = standing.gang
        known: AboutGang | None = made.hopeless(standing, kind) or made.started(gang, kind)
        if known is None:
            all_started = False
            known = made.promised(gang, kind) or preemption.wait(gang, kind) or reservations.wait(standing, kind)
        made.add(known)
    if all_started:
        grow_to_wish(made)
    return [*made.decisions, *reservations.again()]
