"""Finds other nodes for what running gangs lost with a node."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import replace

from tarragon.scheduling.actions.reservations import NodeReservations
from tarragon.scheduling.actions.shrink_for_starving import Shrinking
from tarragon.scheduling.api.decision import Resize
from tarragon.scheduling.api.snapshot import WaitingGang
from tarragon.scheduling.cycle.scheduling_cycle import SchedulingCycle

_LONG_AGO = dt.datetime.min.replace(tzinfo=dt.UTC)


def make_room_for_displaced(cycle: SchedulingCycle, shrinking: Shrinking, reservations: NodeReservations) -> None:
    """Let others shrink for what gangs lost and need for their minimum, or reserve nodes for it."""
    for standing in map(cycle.new_entry, _displaced_demands(cycle)):
        gang, kind = standing.gang, cycle.shape_states[standing.shape]
        decision = cycle.defer_unschedulable(standing, kind) or cycle.try_reserve_releasing(gang, kind)
        if decision is None and shrinking.wait(gang, kind) is None:
            reservations.defer(standing, kind)


def _displaced_demands(cycle: SchedulingCycle) -> Iterator[WaitingGang]:
    """Yield what running gangs lost with a node and need for their minimum, as gangs that have waited very long."""
    settled = {decision.gang: decision.nodes for decision in cycle.decisions if isinstance(decision, Resize)}
    for gang in cycle.snapshot.running:
        if not gang.displaced:
            continue
        nodes = settled.get(gang.name, gang.nodes)
        lost = {replica for replica in gang.displaced & nodes.keys() if nodes[replica] == gang.nodes[replica]}
        demands = []
        for demand in gang.demands:
            lost_count = sum(replica.type == demand.type for replica in lost)
            remaining = sum(replica.type == demand.type for replica in nodes) - lost_count
            needed = min(lost_count, max(0, demand.minimum - remaining))
            demands.append(replace(demand, minimum=needed, requested=needed, maximum=0))
        if any(demand.minimum for demand in demands):
            yield WaitingGang(
                name=gang.name, queued_at=_LONG_AGO, demands=demands, priority=gang.priority, can_preempt=False
            )
