"""The policy of DRAGON's README: backfilling, shrinking elastic gangs for starving ones, and growing on idle nodes.

Each cycle starts as many gangs as there is room for, in queue order. For a starving gang, others give back replicas
above their minimum, but only if it can start then; what is being released for it is reserved. Where that is not enough,
nodes are reserved for it as they become free, so that it neither blocks others nor is passed for good.
"""

from __future__ import annotations

from collections.abc import Sequence

from tarragon.scheduling.actions.displaced_replicas import make_room_for_displaced
from tarragon.scheduling.actions.grow import grow_elastic_gangs
from tarragon.scheduling.actions.preempt import Preemption
from tarragon.scheduling.actions.queue_order import in_queue_order
from tarragon.scheduling.actions.reservations import NodeReservations
from tarragon.scheduling.actions.running_gangs import settle_running_gangs
from tarragon.scheduling.actions.shrink_for_starving import Shrinking
from tarragon.scheduling.api.decision import Decision, GangDecision, RequeueAt
from tarragon.scheduling.api.snapshot import Snapshot
from tarragon.scheduling.cycle.scheduling_cycle import SchedulingCycle
from tarragon.scheduling.state.memory import Memory


def dragon(snapshot: Snapshot, memory: Memory) -> Sequence[Decision]:
    """Schedule displaced replicas first, then waiting gangs; then let gangs grow on what is left."""
    cycle = SchedulingCycle(snapshot, memory)
    settle_running_gangs(cycle)
    shrinking, preemption, reservations = Shrinking(cycle), Preemption(cycle), NodeReservations(cycle)
    make_room_for_displaced(cycle, shrinking, reservations)
    for standing, kind in reservations.undecided(in_queue_order(cycle)):
        gang = standing.gang
        decision: GangDecision | None = (
            cycle.defer_unschedulable(standing, kind)
            or cycle.try_admit(gang, kind)
            or cycle.try_reserve_releasing(gang, kind)
        )
        decision = decision or shrinking.wait(gang, kind) or preemption.preempt_for(gang, kind)
        cycle.add(decision or reservations.defer(standing, kind))
    at = grow_elastic_gangs(cycle, reservations.not_starving)
    return [*cycle.decisions, *reservations.requeue(), *([] if at is None else [RequeueAt(at)])]
