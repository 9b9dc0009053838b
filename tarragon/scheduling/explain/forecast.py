"""When a gang that waits will probably start: the queue is played forward with the very policy, again and again.

Each time those who run end after other lengths of time, as gangs of this cluster did. Nothing is drawn at random: the
lengths are spread evenly over what was seen, so that the same picture always gives the same answer.
"""

from __future__ import annotations

import datetime as dt
import heapq
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tarragon.base.resources import Resources, minus, total
from tarragon.job.model import Replica, ReplicaType
from tarragon.scheduling.api.decision import Again, Decision, Evict, Place, Resize
from tarragon.scheduling.api.snapshot import Demand, Gang, NodeState, RunningGang, Snapshot
from tarragon.scheduling.explain.runtime_estimates import Lengths, Seconds
from tarragon.scheduling.state.inventory import Inventory

Policy = Callable[[Snapshot], Sequence[Decision]]

COURSES = 60
"""How often the queue is played forward, unless that takes too much work."""
LEAST_COURSES = 11
LIKENESS = 0.3
"""How much of a gang's luck is that of all gangs; measured: with none the bands of real traces are too narrow."""
LEAST_FINISHED = 5
"""Fewer jobs that have ended tell nothing."""
MOST_AHEAD = 100
"""Where more gangs than this come first, the queue is not played forward."""
FRONT = 16
"""Gangs that are looked at in each round of it, beside the one in question: those that come first."""
MOST_WORK = 1_500_000
"""Rounds times what each has to look at: about a second."""
LUMP = 0.02
"""Of the time that has passed: ends that follow each other more closely are one moment."""
GRACE = 5.0
"""Seconds that pods which were told to end may take; the default of Kubernetes is 30, most need a moment."""
BAND = (0.1, 0.5, 0.9)
"""The band holds four of five starts; half of them come before its middle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Four of five such gangs start between `earliest` and `latest`."""

    earliest: dt.datetime
    likely: dt.datetime | None
    """None where more than half of the courses wait for a gang that has run longer than any that has ended."""
    latest: dt.datetime | None
    finished: int
    """Gangs that have ended, by which it was judged."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Why nothing can be said, in words."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What is known of how long gangs run, by their names."""

    lengths: Lengths
    kinds: Mapping[str, Sequence[Hashable]] = field(default_factory=dict)
    """As in `Life`."""


def forecast(name: str, picture: Snapshot, outlook: Outlook, policy: Policy) -> Forecast | Unknown:
    """When the gang of that name starts, which waits in the picture."""
    lengths = outlook.lengths
    if lengths.finished < LEAST_FINISHED:
        return Unknown(_too_few(lengths.finished))
    waiting = _ordered(picture.waiting)
    if picture.rules.is_fair:
        waiting = _by_turns(waiting)
    place = next(place for place, gang in enumerate(waiting) if gang.name == name)
    if place > MOST_AHEAD:
        return Unknown(f"{place} jobs are ahead of it, too many to play the queue forward")
    # Who comes behind may pass it where a policy lets them.
    known = replace(picture, nodes=Inventory.of(picture.nodes), waiting=waiting[: place + FRONT])
    seconds = _starts(name, known, _lasting(known, outlook), policy)
    if len(seconds) < LEAST_COURSES:
        return Unknown("the cluster is too large to play its queue forward")
    return _judged(seconds, picture.now, lengths.finished)


def _ordered(waiting: Iterable[Gang]) -> Sequence[Gang]:
    return sorted(waiting, key=lambda gang: gang.order)


def _by_turns(ordered: Sequence[Gang]) -> Sequence[Gang]:
    """Of each priority the first of each namespace, then the second of each: where shares or quotas hold a namespace
    back, those of others come before its many.
    """
    before: Counter[tuple[int, str]] = Counter()
    turns: list[tuple[int, int]] = []
    for gang in ordered:
        turns.append((-gang.priority, before[gang.priority, gang.queue]))
        before[gang.priority, gang.queue] += 1
    return [ordered[place] for place in sorted(range(len(ordered)), key=lambda place: (turns[place], place))]


def _too_few(finished: int) -> str:
    if not finished:
        return "no job has ended here yet by which the length of others could be judged"
    return f"only {finished} job{'s have' if finished > 1 else ' has'} ended here: too few to judge others by"


def _judged(seconds: Sequence[float], now: dt.datetime, finished: int) -> Forecast | Unknown:
    ordered = np.sort(seconds)
    marks = [float(ordered[min(len(ordered) - 1, int(share * len(ordered)))]) for share in BAND]
    earliest, likely, latest = (now + dt.timedelta(seconds=mark) if mark < _FAR else None for mark in marks)
    if earliest is None:
        return Unknown("it waits for jobs that have run longer than any that has ended here")
    return Forecast(earliest=earliest, likely=likely, latest=latest, finished=finished)


_FAR = 10.0 * 366 * 86400
"""Seconds after which nothing is told any more."""


def _lasting(picture: Snapshot, outlook: Outlook) -> Mapping[str, Seconds]:
    """How long each gang goes on, a number a course: from now, or from its start."""
    ages = {gang.name: (picture.now - (gang.admitted or picture.now)).total_seconds() for gang in picture.running}
    names = sorted({*ages, *(gang.name for gang in picture.waiting)})
    shares = _evenly(len(names))
    return {
        name: outlook.lengths.remaining(outlook.kinds.get(name, ()), max(0.0, ages.get(name, 0.0)), of_gang)
        for name, of_gang in zip(names, shares, strict=True)
    }


def _evenly(gangs: int) -> Seconds:
    """A row a gang, a number a course: the same shares, evenly over 0 to 1, each row in an order of its own.

    But where one gang is among the long ones, others are a little more often than not: jobs come in batches.
    """
    numbers = np.arange(gangs + 1, dtype=np.uint64)[:, None] * np.uint64(0x9E3779B97F4A7C15)
    mixed = numbers ^ (np.arange(1, COURSES + 1, dtype=np.uint64)[None, :] * np.uint64(0xD1B54A32D192ED03))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    shares = (np.argsort(mixed ^ (mixed >> np.uint64(31)), axis=1) + 0.5) / COURSES
    odds = np.log(shares / (1 - shares))
    luck = np.sqrt(LIKENESS) * odds[:1] + np.sqrt(1 - LIKENESS) * odds[1:]
    return (np.argsort(np.argsort(luck, axis=1), axis=1) + 0.5) / COURSES


def _starts(name: str, picture: Snapshot, lasting: Mapping[str, Seconds], policy: Policy) -> Sequence[float]:
    """Seconds until its start, a number a course; fewer than wanted where each of them is much work."""
    found: list[float] = []
    left = MOST_WORK
    for number in range(COURSES):
        course = _Course(picture, {gang: float(seconds[number]) for gang, seconds in lasting.items()})
        at = course.start_of(name, policy, left)
        if at is None:
            break
        found.append(at)
        left -= course.work
    return found


class _Course:
    """One way in which things may go on. Lengths are those of gangs as they are: growing makes none shorter."""

    def __init__(self, picture: Snapshot, lasting: Mapping[str, float]) -> None:
        self._picture = picture
        self._nodes = Inventory.of(picture.nodes)
        self._waiting = {gang.name: gang for gang in picture.waiting}
        self._running = {gang.name: gang for gang in picture.running}
        self._lasting = dict(lasting)
        rules = picture.rules
        self._rules_count = rules.is_fair or any(queue.quota for queue in rules.queues.values())
        """What each namespace holds does, too, then."""
        self._urgent = max(gang.priority for gang in picture.waiting)
        self._ends = {gang.name: lasting[gang.name] for gang in picture.running}
        self._queue = [(end, name) for name, end in self._ends.items()]
        heapq.heapify(self._queue)
        self._looks = [GRACE] if any(any(node.releasing.values()) for node in picture.nodes) else []
        self.work = 0

    def start_of(self, name: str, policy: Policy, most_work: int) -> float | None:
        """Infinite where it waits for an end that nobody knows; None where it is more work than that to find out."""
        now = 0.0
        while now < _FAR:
            snapshot = self._snapshot(name, now)
            self.work += len(self._nodes) + 20 * (len(snapshot.waiting) + len(snapshot.running)) + 100
            if self.work > most_work:
                return None
            for decision in policy(snapshot):
                if isinstance(decision, Place) and decision.gang == name:
                    return now
                self._apply(decision, now)
            now = self._next(now)
        return float("inf")

    def _snapshot(self, name: str, now: float) -> Snapshot:
        ordered = self._front()
        mine = self._waiting[name]
        settled = [gang for gang in self._running.values() if not self._may_change(gang)] if self._rules_count else ()
        return replace(
            self._picture,
            now=self._picture.now + dt.timedelta(seconds=now),
            nodes=self._nodes,
            waiting=ordered if mine in ordered else [*ordered, mine],
            running=[gang for gang in self._running.values() if self._may_change(gang)],
            beside=[*self._picture.beside, *settled],
        )

    def _front(self) -> Sequence[Gang]:
        if self._rules_count:
            return _by_turns(_ordered(self._waiting.values()))[:FRONT]
        return heapq.nsmallest(FRONT, self._waiting.values(), key=lambda gang: gang.order)

    def _may_change(self, gang: RunningGang) -> bool:
        """Of all others a policy says nothing, as of those that are settled in the operator's own picture."""
        if gang.elastic or gang.homeless or gang.priority < self._urgent:
            return True
        return len(gang.nodes) > sum(demand.wish for demand in gang.demands)

    def _next(self, now: float) -> float:
        """The moment at which something happens next; it has happened then."""
        soonest = min([*self._looks, *(end for end, _ in self._queue[:1])], default=float("inf"))
        self._looks = [look for look in self._looks if look > soonest]
        if soonest >= GRACE:
            self._released()
        until = soonest * (1 + LUMP)
        while self._queue and self._queue[0][0] <= until < _FAR:
            end, name = heapq.heappop(self._queue)
            soonest = end
            # Who was sent away and started again has another end than it had.
            if self._ends.get(name) == end:
                del self._ends[name]
                self._give(self._running.pop(name), 1)
        return max(now, soonest)

    def _released(self) -> None:
        """Whoever was told to end has ended."""
        ended = [
            replace(node, free=total([node.free, node.releasing]), releasing={})
            for node in self._nodes
            if any(node.releasing.values())
        ]
        self._nodes = self._nodes.changed(ended)

    def _apply(self, decision: Decision, now: float) -> None:
        at = self._picture.now + dt.timedelta(seconds=now)
        match decision:
            case Place(name, nodes):
                self._admit(_running(self._waiting.pop(name), nodes, at), now)
            case Resize(name, nodes):
                before = self._running[name]
                self._give(before, 1)
                self._running[name] = replace(
                    before, nodes=nodes, homeless=frozenset(), resized=at, wished=_wished(before.demands)
                )
                self._give(self._running[name], -1)
                self._looks.append(now + GRACE)
            case Evict(name):
                gang = self._running.pop(name)
                self._give(gang, 1)
                self._lasting[name] = self._ends.pop(name) - now
                self._waiting[name] = _waiting(gang)
                self._looks.append(now + GRACE)
            case Again(moment) if moment > at:
                self._looks.append((moment - self._picture.now).total_seconds())

    def _admit(self, gang: RunningGang, now: float) -> None:
        self._running[gang.name] = gang
        self._give(gang, -1)
        self._ends[gang.name] = now + self._lasting[gang.name]
        heapq.heappush(self._queue, (self._ends[gang.name], gang.name))

    def _give(self, gang: RunningGang, sign: int) -> None:
        """Back to the nodes what it holds; take it with a sign of -1."""
        held = held_by(gang)
        states: list[NodeState] = []
        for name, amounts in held.items():
            row = self._nodes.row_of.get(name)
            if row is not None:
                node = self._nodes.states[row]
                states.append(replace(node, free=_moved(node.free, amounts, sign)))
        self._nodes = self._nodes.changed(states)


def held_by(gang: RunningGang) -> Mapping[str, Resources]:
    """By node. Who has finished, or lost the node, holds nothing."""
    each = {demand.type: demand.each for demand in gang.demands}
    held: dict[str, Resources] = {}
    for replica, node in gang.nodes.items():
        if replica not in gang.finished and replica not in gang.homeless and replica.type in each:
            held[node] = total([held.get(node, {}), each[replica.type]])
    return held


def _moved(free: Resources, amounts: Resources, sign: int) -> Resources:
    return total([free, amounts]) if sign > 0 else minus(free, amounts)


def _running(gang: Gang, nodes: Mapping[Replica, str], at: dt.datetime) -> RunningGang:
    return RunningGang(
        name=gang.name,
        demands=gang.demands,
        nodes=nodes,
        elastic=any(demand.minimum < max(demand.wish, demand.maximum) for demand in gang.demands),
        priority=gang.priority,
        queue=gang.queue,
        admitted=at,
        wished=_wished(gang.demands),
    )


def _waiting(gang: RunningGang) -> Gang:
    """It keeps its turn: gangs that were sent away queue since they first came, which is not later than their start."""
    queued = gang.admitted or dt.datetime.min.replace(tzinfo=dt.UTC)
    return Gang(name=gang.name, queued=queued, demands=gang.demands, priority=gang.priority, queue=gang.queue)


def _wished(demands: Sequence[Demand]) -> Mapping[ReplicaType, int]:
    return {demand.type: demand.wish for demand in demands}
