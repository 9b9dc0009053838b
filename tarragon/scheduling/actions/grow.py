"""Gangs that run get what nobody needs: one replica at a time, first whoever has the smallest part of its maximum."""

from __future__ import annotations

import datetime as dt
import heapq
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tarragon.job.model import Replica
from tarragon.scheduling.actions.running import IDLE, has_risen
from tarragon.scheduling.api.rules import span
from tarragon.scheduling.api.snapshot import Demand, Gang, RunningGang
from tarragon.scheduling.cycle.scheduling_cycle import Round
from tarragon.scheduling.placement.fit import extend
from tarragon.scheduling.state.ledger import Ledger
from tarragon.scheduling.state.node_requests import Ask

ASKED = "asked for"
REPLICAS_A_ROUND = 512
"""So many replicas are added in one round; a cluster that is idle for longer gives more."""
_WORTH_A_RESTART = 1.25

Lacking = tuple[Replica, Demand]


def grow(made: Round, young: Sequence[Gang]) -> dt.datetime | None:
    """When to look again, if that is known. `young` are those for whom others do not shrink yet: what they could use
    is left to them.

    Who wishes more of a gang than before gets it at once. Beyond that gangs grow up to their maximum when nothing has
    been started or resized for a while, and each when it has had its size for a while.
    """
    growing = _Growing(made, _left_over(made, young))
    idle = _last_action(made) + span(made.snapshot.rules.idle)
    later: list[tuple[dt.datetime, RunningGang]] = []
    for gang in made.snapshot.running:
        if not gang.elastic or gang.name in made.changed:
            continue
        if has_risen(gang):
            growing.add(gang, list(_lacking(gang, beyond=False)), ASKED)
        elif len(gang.nodes) < sum(_most(demand) for demand in gang.demands):
            at = max(idle, _rested(gang, made))
            if at > made.snapshot.now:
                later.append((at, gang))
            elif lacking := list(_lacking(gang, beyond=True)):
                growing.add(gang, lacking, IDLE)
    growing.fill()
    if growing.is_left and _some_began_small(made):
        return made.snapshot.now + span(made.snapshot.rules.idle)
    return growing.next_of(later)


def _some_began_small(made: Round) -> bool:
    """Of those that start in this round."""
    began = made.began
    waiting = (gang for gang in made.snapshot.waiting if gang.name in began) if began else ()
    return any(began[gang.name] < sum(_most(demand) for demand in gang.demands) for gang in waiting)


def _lacking(gang: RunningGang, *, beyond: bool) -> Iterator[Lacking]:
    """Up to its wish, or beyond that to its maximum, lowest index first."""
    there = Counter(replica.type for replica in gang.nodes)
    for demand in gang.demands:
        limit = _most(demand) if beyond else demand.wish
        free = (Replica(demand.type, index) for index in range(limit))
        missing = [replica for replica in free if replica not in gang.nodes]
        yield from ((replica, demand) for replica in missing[: max(0, limit - there[demand.type])])


def _most(demand: Demand) -> int:
    return max(demand.maximum, demand.wish)


def _rested(gang: RunningGang, made: Round) -> dt.datetime:
    rest = span(made.snapshot.rules.cool_down)
    if gang.resized is None or gang.resized > made.snapshot.now + rest:
        return made.snapshot.now  # Nobody rests since the day after tomorrow: a clock was wrong.
    return gang.resized + rest


def _last_action(made: Round) -> dt.datetime:
    """What this round has decided counts, too."""
    if made.changed or made.began:
        return made.snapshot.now
    latest = made.snapshot.now + span(made.snapshot.rules.idle)
    moments = (at for gang in made.snapshot.running for at in (gang.admitted, gang.resized) if at is not None)
    return max((at for at in moments if at <= latest), default=dt.datetime.min.replace(tzinfo=dt.UTC))


def _left_over(made: Round, young: Iterable[Gang]) -> Ledger:
    """Without the nodes on which one of these could have a replica."""
    table = made.free.table.copy(order="K")
    asked = {made.nodes.ask(demand): demand for gang in young for demand in gang.demands if demand.minimum}
    for ask, demand in asked.items():
        if ask.columns and made.free.has_as_many(demand, 1):
            table[ask.room(made.free.table, ask.mask) > 0] = 0
    return Ledger(made.nodes, table)


class _Growing:
    def __init__(self, made: Round, ledger: Ledger) -> None:
        self._made = made
        self._ledger = ledger
        self.is_left = bool((ledger.table > 0).any())
        self._line: list[tuple[float, str]] = []
        self._gangs: dict[str, tuple[RunningGang, dict[Replica, str], deque[Lacking], str]] = {}

    def add(self, gang: RunningGang, lacking: Sequence[Lacking], reason: str) -> None:
        """One that is started again for it gets all or nothing, and only for much more than it has."""
        worth_it = reason == ASKED or len(gang.nodes) + len(lacking) >= _WORTH_A_RESTART * len(gang.nodes)
        if not lacking or not self.is_left or (gang.whole and not worth_it):
            return
        self._gangs[gang.name] = gang, dict(gang.nodes), deque(lacking), reason
        heapq.heappush(self._line, (self._part(gang, gang.nodes), gang.name))

    def fill(self) -> None:
        """Until nothing is left, or nobody wants it."""
        left = REPLICAS_A_ROUND
        while self._line and left > 0:
            _, name = heapq.heappop(self._line)
            gang, nodes, lacking, _ = self._gangs[name]
            if gang.whole:
                left -= self._whole(gang, nodes, list(lacking))
            elif self._one(gang, nodes, lacking.popleft()):
                left -= 1
                if lacking:
                    heapq.heappush(self._line, (self._part(gang, nodes), name))
        for gang, nodes, _, reason in self._gangs.values():
            if len(nodes) > len(gang.nodes):
                self._made.resize(gang, nodes, reason)

    def next_of(self, later: Sequence[tuple[dt.datetime, RunningGang]]) -> dt.datetime | None:
        """The first moment at which one of these could have more."""
        if not later or not self.is_left:
            return None
        takes: dict[Ask, bool] = {}
        for at, gang in sorted(later, key=lambda moment: (moment[0], moment[1].name)):
            there = Counter(replica.type for replica in gang.nodes)
            for demand in gang.demands:
                ask = self._made.nodes.ask(demand)
                if there[demand.type] < _most(demand) and ask not in takes:
                    takes[ask] = bool(self._ledger.room(demand).any())
                if there[demand.type] < _most(demand) and takes[ask]:
                    return at
        return None

    def _part(self, gang: RunningGang, nodes: Mapping[Replica, str]) -> float:
        """Of what it could have at most; those that it has in any case don't count."""
        elastic = {demand.type: _most(demand) for demand in gang.demands if _most(demand) > demand.minimum}
        return sum(replica.type in elastic for replica in nodes) / max(1, sum(elastic.values()))

    def _one(self, gang: RunningGang, nodes: dict[Replica, str], lacking: Lacking) -> bool:
        if not self._made.shares.permitted(gang.queue, [lacking]):
            return False
        added = extend([lacking], self._ledger, near=nodes)
        self._made.taken(gang, added)
        nodes.update(added)
        return bool(added)

    def _whole(self, gang: RunningGang, nodes: dict[Replica, str], lacking: list[Lacking]) -> int:
        if len(self._made.shares.permitted(gang.queue, lacking)) < len(lacking):
            return 0
        added = extend(lacking, self._ledger, near=nodes)
        if len(added) < len(lacking):
            each = {replica: demand.each for replica, demand in lacking}
            self._ledger.undo(added, each)
            return 0
        self._made.taken(gang, added)
        nodes.update(added)
        return len(added)
