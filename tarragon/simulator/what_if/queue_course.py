"""Plays a queue forward with a policy: when each gang of a snapshot starts, changes its size and ends.

Each gang runs for as long as is expected of it, and elastic ones by their sizes. No gang arrives later. Pods that
belong to no gang stay where they are, and so do gangs about which nothing may be decided.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tarragon.scheduling.api.decision import Admit, Defer, Evict, GangDecision, Resize
from tarragon.scheduling.api.snapshot import RunningGang, Snapshot
from tarragon.scheduling.cycle.decision_validation import validate_decisions
from tarragon.scheduling.estimates.estimate import MIN_REMAINING_SECONDS
from tarragon.scheduling.explain.forecast import TERMINATION_SECONDS
from tarragon.scheduling.explain.projected_cluster import ProjectedCluster
from tarragon.scheduling.state.memory import Memory, Policy
from tarragon.simulator.what_if.expected_runs import Basis, ExpectedRun, size_of

MAX_WORK = 15_000_000
"""The bound on simulated cycles times what each has to consider: some seconds."""
HORIZON_SECONDS = 366 * 86400.0
"""Later starts and ends are not looked for."""
REQUEUE_PART = 0.01
"""A policy that asks to be called again is called after this part of the elapsed time at the earliest: what happens in
a minute matters now, but not next week.
"""
WORK_REFRESH_SECONDS = 60.0
"""The estimates that a policy sees are at most about so old, as in the operator."""
_DIGITS = 3
"""Milliseconds: sums of floats are not exact."""
STALLED_CYCLES = 20
"""If nothing runs that could end, and so many cycles change nothing, nothing will ever change."""


@dataclass(frozen=True, slots=True)
class SizeChange:
    """The gang has so many replicas from then on, in seconds from the snapshot; none if it was stopped."""

    at: float
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GangCourse:
    """What becomes of one gang. Times are in seconds from the snapshot."""

    name: str
    is_waiting: bool
    """Whether it waits in the snapshot."""
    starts_in: float | None = None
    """When it starts for the first time; None for one that runs in the snapshot, or that does not start."""
    ends_in: float | None = None
    basis: Basis
    is_rough: bool = False
    """Whether its start follows ends that are only assumed."""
    displaced: int = 0
    """The number of replicas that have lost their node in the snapshot."""
    sizes: Sequence[SizeChange] = ()
    wait: Defer | None = None
    """Why it does not start, by the last cycle."""

    @property
    def stops(self) -> int:
        """How often it is stopped for others."""
        return sum(not change.replicas for change in self.sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCourse:
    """What becomes of all gangs."""

    gangs: Mapping[str, GangCourse]
    """By name: those that wait in the order of the snapshot, then those that run."""
    cut_at: float | None = None
    """The seconds after which it was not followed any further, because that would take too long."""


def queue_course(
    snapshot: Snapshot, runs: Mapping[str, ExpectedRun], policy: Policy, most_work: int = MAX_WORK
) -> QueueCourse:
    """Play the queue forward until all gangs that can start have ended."""
    return _Run(snapshot, runs).course(policy, most_work)


@dataclass(slots=True, eq=False)
class _Progress:
    """What is left of a gang, and how fast it goes."""

    run: ExpectedRun
    rest: float
    """Of its work, in device-seconds."""
    speed: float = 0.0
    pause_until: float = 0.0
    starts_in: float | None = None
    ends_in: float | None = None
    is_rough: bool = False
    sizes: list[SizeChange] = field(default_factory=list)
    wait: Defer | None = None

    def end(self, now: float) -> float:
        if not self.speed:
            return math.inf
        return round(max(now, self.pause_until) + max(0.0, self.rest) / self.speed, _DIGITS)

    def advance(self, before: float, now: float) -> None:
        self.rest -= self.speed * max(0.0, now - max(before, self.pause_until))

    def go_on(self, gang: RunningGang | None, now: float, pause: float = 0.0) -> None:
        """Continue with the replicas that the gang has from now on, or with none."""
        self.pause_until = now + pause
        self.speed = 0.0 if gang is None or not _is_whole(gang) else self.run.work.curve.at(size_of(gang))
        replicas = 0 if gang is None else len(gang.nodes.keys() - gang.displaced)
        if not self.sizes or self.sizes[-1].replicas != replicas:
            self.sizes.append(SizeChange(now, replicas))


class _Run:
    def __init__(self, snapshot: Snapshot, runs: Mapping[str, ExpectedRun]) -> None:
        self._base = snapshot
        self._cluster = ProjectedCluster(snapshot)
        self._progress = {name: _Progress(run, run.work.remaining) for name, run in runs.items()}
        for gang in snapshot.running:
            self._progress[gang.name].go_on(gang, 0.0)
        self._again_at = TERMINATION_SECONDS if self._cluster.has_terminating else math.inf
        """When what was changed has taken effect."""
        self._requeue_at = math.inf
        """When the policy asked to be called again, in the last cycle."""
        self._now = 0.0
        self._refreshed_at = 0.0
        self._first_assumed_end = math.inf
        self._cut_at: float | None = None

    def course(self, policy: Policy, most_work: int) -> QueueCourse:
        memory, unchanged, work = Memory(), 0, 0
        while self._cluster.waiting or self._cluster.running:
            work += len(self._cluster.nodes) + 20 * (len(self._cluster.waiting) + len(self._cluster.running)) + 100
            if work > most_work or self._now > HORIZON_SECONDS:
                self._cut_at = self._now
                break
            is_changed = self._cycle(policy, memory)
            end = self._next_end()
            unchanged = 0 if is_changed or end < math.inf else unchanged + 1
            after = min(self._again_at, self._requeue_at, end)
            if after == math.inf or unchanged > STALLED_CYCLES:
                break
            self._advance(after)
        return QueueCourse(gangs=dict(self._courses()), cut_at=self._cut_at)

    def _courses(self) -> Sequence[tuple[str, GangCourse]]:
        return [
            *((gang.name, self._course(gang.name, is_waiting=True, displaced=0)) for gang in self._base.waiting),
            *(
                (gang.name, self._course(gang.name, is_waiting=False, displaced=len(gang.displaced)))
                for gang in self._base.running
            ),
        ]

    def _course(self, name: str, *, is_waiting: bool, displaced: int) -> GangCourse:
        progress = self._progress[name]
        return GangCourse(
            name=name,
            is_waiting=is_waiting,
            starts_in=progress.starts_in,
            ends_in=progress.ends_in,
            basis=progress.run.basis,
            is_rough=progress.is_rough,
            displaced=displaced,
            sizes=tuple(progress.sizes),
            wait=progress.wait,
        )

    def _cycle(self, policy: Policy, memory: Memory) -> bool:
        """Run one scheduling cycle, and return whether it changed anything."""
        snapshot = self._snapshot()
        checked = validate_decisions(snapshot, policy(snapshot, memory))
        changes = [decision for decision in checked.accepted if self._is_applied(decision)]
        if changes:
            self._again_at = self._now + TERMINATION_SECONDS
        self._requeue_at = math.inf
        if checked.requeue_at is not None:
            asked = (checked.requeue_at - self._base.now).total_seconds()
            self._requeue_at = max(asked, self._now * (1 + REQUEUE_PART), self._now + 1)
        return bool(changes)

    def _snapshot(self) -> Snapshot:
        if self._now - self._refreshed_at >= WORK_REFRESH_SECONDS:
            self._refreshed_at = self._now
            self._refresh_work()
        waiting = sorted(self._cluster.waiting.values(), key=lambda gang: gang.sort_key)
        running = [self._cluster.running[name] for name in sorted(self._cluster.running)]
        now = self._base.now + dt.timedelta(seconds=self._now)
        return replace(self._base, now=now, nodes=self._cluster.nodes, waiting=waiting, running=running)

    def _refresh_work(self) -> None:
        """Update what a policy sees of the rest of running gangs, where the operator would know it."""
        for name, gang in self._cluster.running.items():
            if gang.work is not None and gang.work.is_known:
                rest = max(MIN_REMAINING_SECONDS, self._progress[name].rest)
                self._cluster.running[name] = replace(gang, work=replace(gang.work, remaining=rest))

    def _is_applied(self, decision: GangDecision) -> bool:
        """Apply a decision. A wait changes nothing."""
        progress = self._progress[decision.gang]
        if isinstance(decision, Defer):
            progress.wait = decision
            return False
        self._cluster.apply(decision, self._base.now + dt.timedelta(seconds=self._now))
        gang = self._cluster.running.get(decision.gang)
        restart = progress.run.work.restart_seconds
        match decision:
            case Admit():
                is_first = progress.starts_in is None and not progress.sizes
                if is_first:
                    progress.starts_in = self._now
                    progress.is_rough = self._now >= self._first_assumed_end
                # The run times of other jobs contain the start.
                progress.go_on(gang, self._now, 0.0 if is_first and progress.run.basis is not Basis.WORK else restart)
            case Resize():
                progress.go_on(gang, self._now, restart)
            case Evict():
                progress.go_on(None, self._now)
        return True

    def _next_end(self) -> float:
        return min((self._progress[name].end(self._now) for name in self._cluster.running), default=math.inf)

    def _advance(self, then: float) -> None:
        if then >= TERMINATION_SECONDS:
            self._cluster.end_terminating()
        ended = [name for name in self._cluster.running if self._progress[name].end(self._now) <= then]
        for name in self._cluster.running:
            self._progress[name].advance(self._now, then)
        self._now = then
        if then >= self._again_at:
            self._again_at = math.inf
        for name in ended:
            self._cluster.end(name)
            progress = self._progress[name]
            progress.ends_in, progress.speed = then, 0.0
            if progress.run.basis is Basis.ASSUMED:
                self._first_assumed_end = min(self._first_assumed_end, then)


def _is_whole(gang: RunningGang) -> bool:
    """Whether the gang makes progress: with fewer replicas than its minimum, because their node is gone, it waits."""
    if not gang.displaced:
        return True
    present = Counter(replica.type for replica in gang.nodes.keys() - gang.displaced)
    return all(present[demand.type] >= demand.minimum for demand in gang.demands)
