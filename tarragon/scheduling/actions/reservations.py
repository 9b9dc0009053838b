"""Reserves nodes for overdue gangs, so that no other gang passes them for good.

How long a gang runs is unknown, so nodes are reserved rather than times. Running gangs are considered in the order of
their admission. The shortest prefix of them whose end would let the overdue gang start is what it waits for; on the
nodes that it would get then, all that is free or becomes free is reserved for it. Gangs admitted later come behind in
this order and hold nothing that is reserved. So each time one of the gangs it waits for ends, it waits for one fewer,
and never for more: it starts at the latest when all gangs have ended that were running when it became overdue.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator

import numpy as np

from tarragon.job.status import WaitReason
from tarragon.scheduling.api.decision import Defer, RequeueAt
from tarragon.scheduling.api.rules import bounded_timedelta
from tarragon.scheduling.api.snapshot import WaitingGang
from tarragon.scheduling.cycle.scheduling_cycle import SchedulingCycle, ShapeState
from tarragon.scheduling.cycle.victims import select_victims
from tarragon.scheduling.placement.fit import assign
from tarragon.scheduling.state.memory import QueueEntry
from tarragon.scheduling.state.node_requests import Amounts

MAX_RESERVATIONS = 2
"""The number of overdue gangs with a reservation. The next ones get theirs once these have started."""

RESERVED_MESSAGE = "resources that become free are reserved for this job"


class NodeReservations:
    """The reservations of one cycle."""

    def __init__(self, cycle: SchedulingCycle) -> None:
        self._cycle = cycle
        self._reservations_left = MAX_RESERVATIONS
        self.not_starving: list[WaitingGang] = []
        """Waiting gangs that are not starving yet."""
        self._not_overdue: list[dt.datetime] = []
        self._admission_order: Amounts | None = None

    def defer(self, standing: QueueEntry, kind: ShapeState) -> Defer:
        """Return the wait of a gang for which all else was tried; if it is overdue, reserve nodes for it."""
        cycle, gang = self._cycle, standing.gang
        if gang.can_preempt:  # One that may not proves nothing about equal ones that may.
            kind.was_starving = cycle.is_starving(gang)
        wait = cycle.defer_for_resources(standing, kind)
        if not cycle.is_starving(gang):
            self.not_starving.append(gang)
        if not cycle.is_overdue(gang):
            self._not_overdue.append(gang.queued_at)
            return wait
        if not self._reservations_left or not self._reserve(gang, kind):
            return wait
        self._reservations_left -= 1
        return standing.defer(WaitReason(code=wait.code, message=f"{wait.message}; {RESERVED_MESSAGE}"))

    def undecided(self, line: Iterable[QueueEntry]) -> Iterator[tuple[QueueEntry, ShapeState]]:
        """Yield the gangs that need an individual decision. Most of thousands do not, and are added as waiting here: an
        equal gang before them, at least as urgent, had to wait.
        """
        cycle = self._cycle
        kinds, limited, add = cycle.shape_states, cycle.usage.queues_with_quota, cycle.decisions.append
        starving_if, overdue_if = cycle.starving_if_queued_by, cycle.overdue_if_queued_by
        add_young, add_queued_at = self.not_starving.append, self._not_overdue.append
        for standing in line:
            gang, kind = standing.gang, kinds[standing.shape]
            passed, queued_at = kind.was_starving, gang.queued_at
            is_young = queued_at > starving_if
            if passed is None or not (is_young or passed) or (limited and gang.queue in limited):
                yield standing, kind
            elif self._reservations_left and queued_at <= overdue_if:
                add(self.defer(standing, kind))
            else:
                if is_young:
                    add_young(gang)
                add_queued_at(queued_at)
                wait = standing.last_decision if standing.last_reason is kind.no_room_reason else None
                add(wait or cycle.defer_for_resources(standing, kind))

    def requeue(self) -> Iterator[RequeueAt]:
        """Yield when the next gang begins to starve, and when the next one becomes overdue."""
        rules = self._cycle.snapshot.rules
        if self.not_starving:
            first = min(gang.queued_at for gang in self.not_starving)
            yield RequeueAt(first + bounded_timedelta(rules.starvation_seconds))
        later = [moment for moment in self._not_overdue if moment > self._cycle.overdue_if_queued_by]
        if later:
            yield RequeueAt(min(later) + bounded_timedelta(rules.overdue_seconds))

    def _reserve(self, gang: WaitingGang, kind: ShapeState) -> bool:
        """Reserve nodes for the gang, but not what pods outside of gangs hold: they may run for ever."""
        smallest = kind.minimum_demands
        victims = select_victims(smallest, self._in_admission_order(), self._cycle.allocations, self._cycle.future_free)
        nodes = None if victims is None else assign(smallest, victims.ledger)
        if nodes is None:
            return False
        self._cycle.reserve(gang, nodes)
        return True

    def _in_admission_order(self) -> Amounts:
        if self._admission_order is None:
            # Gangs are sorted by name, and the sort is stable.
            self._admission_order = self._cycle.without_changed(np.argsort(self._cycle.admission_times, kind="stable"))
        return self._admission_order
