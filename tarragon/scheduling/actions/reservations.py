"""Places that are kept for aged gangs, so that nobody passes them for good.

Nobody knows how long a gang runs, so what is kept is places, not times. The gangs that run are taken in the order in
which they were admitted: the first of them whose end would let the aged one start are those it waits for, and what is
free, or becomes free, on the places that it would get then is kept for it. Gangs that are admitted later stand behind
those in this order and hold nothing of what is kept. So whenever one ends that the aged gang waits for, it waits for
one less, and it never waits for more: it starts at the latest when all have ended that ran when it had aged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from tarragon.scheduling.api.cycle_memory import Standing
from tarragon.scheduling.api.decision import Again, Wait
from tarragon.scheduling.api.rules import span
from tarragon.scheduling.api.snapshot import Gang
from tarragon.scheduling.cycle.scheduling_cycle import Kind, Round
from tarragon.scheduling.cycle.victims import fewest
from tarragon.scheduling.placement.fit import place
from tarragon.scheduling.state.node_requests import Amounts

KEPT_AT_ONCE = 2
"""So many aged gangs have places kept; the next ones when these have started."""

KEPT = "what becomes free of it is kept for this job"


class Reservations:
    """Of one round."""

    def __init__(self, made: Round) -> None:
        self._made = made
        self._left = KEPT_AT_ONCE
        self.young: list[Gang] = []
        """For whom nothing is kept yet."""
        self._order: Amounts | None = None

    def wait(self, standing: Standing, kind: Kind) -> Wait:
        """For resources; if it is aged, with places that are kept for it."""
        made, gang = self._made, standing.gang
        waits = made.refused(standing, kind)
        if gang.queued > made.old_enough:
            self.young.append(gang)
            return waits
        if not self._left or not self._reserve(gang, kind):
            return waits
        self._left -= 1
        return standing.told((waits.code, f"{waits.message}; {KEPT}"))

    def asking(self, line: Iterable[Standing]) -> Iterator[tuple[Standing, Kind]]:
        """Those about whom there is anything to ask. Most of thousands are none of them: it is decided here that they
        wait, as one of their kind does that went before them: those that are most urgent come first.
        """
        made = self._made
        kinds, limited, add, old_enough = made.kinds, made.shares.limited, made.decisions.append, made.old_enough
        for standing in line:
            gang, kind = standing.gang, kinds[standing.shape]
            passed = kind.passed
            if passed is None or (limited and gang.queue in limited):
                yield standing, kind
                continue
            is_young = gang.queued > old_enough
            if not (is_young or passed):
                yield standing, kind
            elif self._left and not is_young:
                add(self.wait(standing, kind))
            else:
                if is_young:
                    self.young.append(gang)
                known = standing.wait if standing.why is kind.refused else None
                add(known or made.refused(standing, kind))

    def again(self) -> Iterator[Again]:
        """When the next one is aged."""
        if self.young:
            yield Again(min(gang.queued for gang in self.young) + span(self._made.snapshot.rules.aged))

    def _reserve(self, gang: Gang, kind: Kind) -> bool:
        """Not on what others hold who are no gangs: they may stay for ever."""
        smallest = kind.smallest
        ends = fewest(smallest, self._eldest_first(), self._made.holders, self._made.soon)
        nodes = None if ends is None else place(smallest, ends.ledger)
        if nodes is None:
            return False
        self._made.reserve(gang, nodes)
        return True

    def _eldest_first(self) -> Amounts:
        if self._order is None:
            # They come by name, and sorting keeps equals as they are.
            self._order = self._made.unchanged(np.argsort(self._made.admitted, kind="stable"))
        return self._order
