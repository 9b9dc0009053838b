"""Reserves nodes for starving gangs, so that no other gang passes them for good.

How long a gang runs is unknown, so nodes are reserved rather than times. Running gangs are considered in the order of
their admission. The shortest prefix of them whose end would let the starving gang start is what it waits for; on the
nodes that it would get then, all that is free or becomes free is reserved for it. Gangs admitted later come behind in
this order and hold nothing that is reserved. So each time one of the gangs it waits for ends, it waits for one fewer,
and never for more: it starts at the latest when all gangs have ended that were running when it began to starve.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from tarragon.scheduling.api.decision import Again, Wait
from tarragon.scheduling.api.rules import span
from tarragon.scheduling.api.snapshot import Gang
from tarragon.scheduling.cycle.scheduling_cycle import Kind, Round
from tarragon.scheduling.cycle.victims import fewest
from tarragon.scheduling.placement.fit import place
from tarragon.scheduling.state.memory import Standing
from tarragon.scheduling.state.node_requests import Amounts

KEPT_AT_ONCE = 2
"""The number of starving gangs with a reservation. The next ones get theirs once these have started."""

KEPT = "resources that become free are reserved for this job"


class Reservations:
    """The reservations of one cycle."""

    def __init__(self, cycle: Round) -> None:
        self._cycle = cycle
        self._reservations_left = KEPT_AT_ONCE
        self.young: list[Gang] = []
        """Waiting gangs that are not starving yet."""
        self._admission_order: Amounts | None = None

    def wait(self, standing: Standing, kind: Kind) -> Wait:
        """Return the gang's wait for resources; if it is starving, reserve nodes for it."""
        cycle, gang = self._cycle, standing.gang
        wait = cycle.refused(standing, kind)
        if gang.queued > cycle.old_enough:
            self.young.append(gang)
            return wait
        if not self._reservations_left or not self._reserve(gang, kind):
            return wait
        self._reservations_left -= 1
        return standing.told((wait.code, f"{wait.message}; {KEPT}"))

    def asking(self, line: Iterable[Standing]) -> Iterator[tuple[Standing, Kind]]:
        """Yield the gangs that need an individual decision. Most of thousands do not, and are added as waiting here: an
        equal gang before them, at least as urgent, had to wait.
        """
        cycle = self._cycle
        kinds, limited, add, old_enough = cycle.kinds, cycle.shares.limited, cycle.decisions.append, cycle.old_enough
        for standing in line:
            gang, kind = standing.gang, kinds[standing.shape]
            passed = kind.passed
            if passed is None or (limited and gang.queue in limited):
                yield standing, kind
                continue
            is_young = gang.queued > old_enough
            if not (is_young or passed):
                yield standing, kind
            elif self._reservations_left and not is_young:
                add(self.wait(standing, kind))
            else:
                if is_young:
                    self.young.append(gang)
                wait = standing.wait if standing.why is kind.refused else None
                add(wait or cycle.refused(standing, kind))

    def again(self) -> Iterator[Again]:
        """Yield when the next gang begins to starve."""
        if self.young:
            yield Again(min(gang.queued for gang in self.young) + span(self._cycle.snapshot.rules.aged))

    def _reserve(self, gang: Gang, kind: Kind) -> bool:
        """Reserve nodes for the gang, but not what pods outside of gangs hold: they may run for ever."""
        smallest = kind.smallest
        victims = fewest(smallest, self._in_admission_order(), self._cycle.holders, self._cycle.soon)
        nodes = None if victims is None else place(smallest, victims.ledger)
        if nodes is None:
            return False
        self._cycle.reserve(gang, nodes)
        return True

    def _in_admission_order(self) -> Amounts:
        if self._admission_order is None:
            # Gangs are sorted by name, and the sort is stable.
            self._admission_order = self._cycle.unchanged(np.argsort(self._cycle.admitted, kind="stable"))
        return self._admission_order
