"""Gangs that give way to one of higher priority: as few as it takes, and none if that would not let it start."""

from __future__ import annotations

import datetime as dt
from bisect import bisect_left

from tarragon.scheduling.decision import PREEMPTED, Wait
from tarragon.scheduling.needed import fewest
from tarragon.scheduling.round import Round
from tarragon.scheduling.snapshot import Gang, RunningGang

AT_ONCE = 4
"""So many gangs preempt others in one round; the next ones in the rounds that follow at once."""

_LONG_AGO = dt.datetime.min.replace(tzinfo=dt.UTC)


class Preemption:
    """Of one round."""

    def __init__(self, made: Round) -> None:
        self._made = made
        self._left = AT_ONCE if made.snapshot.rules.preempts else 0
        running = made.snapshot.running
        lowest = min((gang.priority for gang in running), default=0)
        self._order: list[int] = []
        self._priorities: list[int] = []
        if self._left and any(gang.priority > lowest for gang in made.snapshot.waiting):
            self._order = sorted(range(len(running)), key=lambda number: _who_goes_first(running[number]))
            self._priorities = [running[number].priority for number in self._order]

    def wait(self, gang: Gang) -> Wait | None:
        """For places that others give back for it. None if it may take none, or all of them were too few."""
        kind = self._made.kind(gang)
        if not self._left or not self._order or not gang.preempts:
            return None
        if kind.in_vain is not None and gang.priority <= kind.in_vain:
            return None
        victims = self._victims(gang)
        if not victims:
            kind.in_vain = gang.priority
            return None
        self._left -= 1
        for victim in victims:
            words = f"{gang.name} has a priority of {gang.priority}, this one of {victim.priority}"
            self._made.evict(victim, PREEMPTED, words)
        return self._made.promised(gang)

    def _victims(self, gang: Gang) -> list[RunningGang]:
        running = self._made.snapshot.running
        lower = self._order[: bisect_left(self._priorities, gang.priority)]
        lower = [number for number in lower if running[number].name not in self._made.changed]
        if not lower:
            return []
        smallest = self._made.kind(gang).smallest
        return [running[number] for number in fewest(smallest, lower, self._made.holders, self._made.soon) or ()]


def _who_goes_first(gang: RunningGang) -> tuple[int, float, str]:
    """The least urgent, of these the youngest: it loses least."""
    return gang.priority, -(gang.admitted or _LONG_AGO).timestamp(), gang.name
