"""Forecasts when a waiting gang will probably start, by simulating the queue many times with the same policy.

Each simulation lets gangs end after other run times, as those seen in this cluster. Nothing is drawn at random: run
times are spread evenly over what was seen, so that the same snapshot always gives the same forecast.
"""

from __future__ import annotations

import datetime as dt
import heapq
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tarragon.scheduling.api.decision import Admit, Decision, Evict, RequeueAt, Resize
from tarragon.scheduling.api.snapshot import RunningGang, Snapshot, WaitingGang
from tarragon.scheduling.explain.projected_cluster import ProjectedCluster
from tarragon.scheduling.explain.runtime_estimates import RunTimeEstimates, Seconds
from tarragon.scheduling.state.inventory import Inventory
from tarragon.scheduling.state.memory import Memory, Policy

MAX_SIMULATIONS = 60
"""The number of simulations, unless that takes too long."""
MIN_SIMULATIONS = 11
RUN_TIME_CORRELATION = 0.3
"""How strongly the run times of different gangs are correlated. Measured: with 0, the bands are too narrow for real
traces.
"""
MIN_FINISHED = 5
"""With fewer finished jobs there is no forecast."""
MAX_AHEAD = 100
"""With more gangs than this ahead there is no forecast."""
QUEUE_HEAD = 16
"""The number of gangs at the head of the queue that each simulated cycle considers, besides the one in question."""
MAX_WORK = 1_500_000
"""The bound on simulated cycles times what each has to consider: about a second."""
MERGED_PART = 0.02
"""Ends within this part of the elapsed time are simulated as one moment."""
TERMINATION_SECONDS = 5.0
"""The seconds that terminating pods are assumed to take. Kubernetes' default grace period is 30, but most need a
moment.
"""
QUANTILES = (0.1, 0.5, 0.9)
"""The shares of simulations that mark the earliest, likely and latest start: four of five starts lie in the band."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Four of five such gangs start between `earliest` and `latest`."""

    earliest: dt.datetime
    likely: dt.datetime | None
    """None if in more than half of the simulations it waits for a gang that has run longer than any finished one."""
    latest: dt.datetime | None
    sample_size: int
    """The number of finished gangs that the forecast is based on."""


@dataclass(frozen=True, slots=True)
class NoForecast:
    """There is no forecast; `reason` is the message that says so."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimeModel:
    """What is known about run times, and the kinds of each gang by name."""

    estimates: RunTimeEstimates
    kinds_by_gang: Mapping[str, Sequence[Hashable]] = field(default_factory=dict)
    """As `RunTime.kinds`."""


def forecast(name: str, snapshot: Snapshot, outlook: RunTimeModel, policy: Policy) -> Forecast | NoForecast:
    """Forecast when the gang of this name, which waits in the snapshot, starts."""
    estimates = outlook.estimates
    if estimates.finished < MIN_FINISHED:
        return NoForecast(_too_few_finished(estimates.finished))
    waiting = _ordered(snapshot.waiting)
    if snapshot.rules.is_fair_share:
        waiting = _interleaved(waiting)
    position = next(position for position, gang in enumerate(waiting) if gang.name == name)
    if position > MAX_AHEAD:
        return NoForecast(f"{position} jobs are ahead of it, too many to simulate the queue")
    # Gangs behind it may pass it, as far as the policy allows.
    front = replace(snapshot, nodes=Inventory.of(snapshot.nodes), waiting=waiting[: position + QUEUE_HEAD])
    seconds = _simulated_starts(name, front, _run_times(front, outlook), policy)
    if len(seconds) < MIN_SIMULATIONS:
        return NoForecast("the cluster is too large to simulate its queue")
    return _forecast_of(seconds, snapshot.now, estimates.finished)


def _ordered(waiting: Iterable[WaitingGang]) -> Sequence[WaitingGang]:
    return sorted(waiting, key=lambda gang: gang.sort_key)


def _interleaved(ordered: Sequence[WaitingGang]) -> Sequence[WaitingGang]:
    """Order the first gang of each namespace before the second of each, within one priority. Where shares or quotas
    hold a namespace back, others come before its many.
    """
    counts: Counter[tuple[int, str]] = Counter()
    turns: list[tuple[int, int]] = []
    for gang in ordered:
        turns.append((-gang.priority, counts[gang.priority, gang.queue]))
        counts[gang.priority, gang.queue] += 1
    return [
        ordered[position] for position in sorted(range(len(ordered)), key=lambda position: (turns[position], position))
    ]


def _too_few_finished(finished: int) -> str:
    if not finished:
        return "there is no finished job (deleted ones do not count), so run times cannot be estimated"
    jobs = "is only 1 finished job" if finished == 1 else f"are only {finished} finished jobs"
    return f"there {jobs} (deleted ones do not count), too few to estimate run times"


def _forecast_of(seconds: Sequence[float], now: dt.datetime, finished: int) -> Forecast | NoForecast:
    ordered = np.sort(seconds)
    quantiles = [float(ordered[min(len(ordered) - 1, int(share * len(ordered)))]) for share in QUANTILES]
    earliest, likely, latest = (now + dt.timedelta(seconds=mark) if mark < _HORIZON else None for mark in quantiles)
    if earliest is None:
        return NoForecast("it waits for jobs that have run longer than any finished job")
    return Forecast(earliest=earliest, likely=likely, latest=latest, sample_size=finished)


_HORIZON = 10.0 * 366 * 86400
"""Starts later than this many seconds are not forecast."""


def _run_times(snapshot: Snapshot, outlook: RunTimeModel) -> Mapping[str, Seconds]:
    """The remaining run time of each gang in every simulation: from now for running gangs, from the
    start for others.
    """
    ages = {gang.name: (snapshot.now - (gang.admitted_at or snapshot.now)).total_seconds() for gang in snapshot.running}
    names = sorted({*ages, *(gang.name for gang in snapshot.waiting)})
    shares = _even_shares(len(names))
    return {
        name: outlook.estimates.remaining(outlook.kinds_by_gang.get(name, ()), max(0.0, ages.get(name, 0.0)), of_gang)
        for name, of_gang in zip(names, shares, strict=True)
    }


def _even_shares(count: int) -> Seconds:
    """Evenly spread shares between 0 and 1: a row for each gang, a column for each simulation, in a different order per
    row.

    The rows are slightly correlated, because jobs come in batches: where one gang runs long, others tend to.
    """
    numbers = np.arange(count + 1, dtype=np.uint64)[:, None] * np.uint64(0x9E3779B97F4A7C15)
    mixed = numbers ^ (np.arange(1, MAX_SIMULATIONS + 1, dtype=np.uint64)[None, :] * np.uint64(0xD1B54A32D192ED03))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    shares = (np.argsort(mixed ^ (mixed >> np.uint64(31)), axis=1) + 0.5) / MAX_SIMULATIONS
    odds = np.log(shares / (1 - shares))
    correlated = np.sqrt(RUN_TIME_CORRELATION) * odds[:1] + np.sqrt(1 - RUN_TIME_CORRELATION) * odds[1:]
    return (np.argsort(np.argsort(correlated, axis=1), axis=1) + 0.5) / MAX_SIMULATIONS


def _simulated_starts(name: str, snapshot: Snapshot, lasting: Mapping[str, Seconds], policy: Policy) -> Sequence[float]:
    """The seconds until the start in each simulation; fewer than `MAX_SIMULATIONS` where each takes long."""
    found: list[float] = []
    left, memory = MAX_WORK, Memory()
    for number in range(MAX_SIMULATIONS):
        course = _Simulation(snapshot, {gang: float(seconds[number]) for gang, seconds in lasting.items()})
        at = course.start_of(name, policy, memory, left)
        if at is None:
            break
        found.append(at)
        left -= course.work
    return found


class _Simulation:
    """One simulation. Run times do not depend on a gang's size: growing does not shorten them."""

    def __init__(self, snapshot: Snapshot, lasting: Mapping[str, float]) -> None:
        self._base = snapshot
        self._cluster = ProjectedCluster(snapshot)
        self._run_times = dict(lasting)
        rules = snapshot.rules
        self._needs_shares = rules.is_fair_share or any(queue.quota for queue in rules.queues.values())
        """Whether shares or quotas matter. If so, what each namespace holds is part of every snapshot."""
        self._highest_priority = max(gang.priority for gang in snapshot.waiting)
        self._ends = {gang.name: lasting[gang.name] for gang in snapshot.running}
        self._end_heap = [(end, name) for name, end in self._ends.items()]
        heapq.heapify(self._end_heap)
        self._cycles_due = [TERMINATION_SECONDS] if self._cluster.has_terminating else []
        self.work = 0

    def start_of(self, name: str, policy: Policy, memory: Memory, most_work: int) -> float | None:
        """Return the seconds until the start: infinite if it waits for an end that is unknown, None if that takes more
        work than allowed.
        """
        now = 0.0
        while now < _HORIZON:
            snapshot = self._snapshot(name, now)
            self.work += len(self._cluster.nodes) + 20 * (len(snapshot.waiting) + len(snapshot.running)) + 100
            if self.work > most_work:
                return None
            for decision in policy(snapshot, memory):
                if isinstance(decision, Admit) and decision.gang == name:
                    return now
                self._apply(decision, now)
            now = self._advance(now)
        return float("inf")

    def _snapshot(self, name: str, now: float) -> Snapshot:
        ordered = self._head()
        target, running = self._cluster.waiting[name], self._cluster.running.values()
        unchanging = [gang for gang in running if not self._is_changeable(gang)] if self._needs_shares else ()
        return replace(
            self._base,
            now=self._base.now + dt.timedelta(seconds=now),
            nodes=self._cluster.nodes,
            waiting=ordered if target in ordered else [*ordered, target],
            running=[gang for gang in running if self._is_changeable(gang)],
            unchangeable=[*self._base.unchangeable, *unchanging],
        )

    def _head(self) -> Sequence[WaitingGang]:
        waiting = self._cluster.waiting.values()
        if self._needs_shares:
            return _interleaved(_ordered(waiting))[:QUEUE_HEAD]
        return heapq.nsmallest(QUEUE_HEAD, waiting, key=lambda gang: gang.sort_key)

    def _is_changeable(self, gang: RunningGang) -> bool:
        """Whether a policy may decide anything about this running gang. All others are left out of snapshots, as
        settled gangs are in the operator's own.
        """
        if gang.is_elastic or gang.displaced or gang.priority < self._highest_priority:
            return True
        return len(gang.nodes) > sum(demand.requested for demand in gang.demands)

    def _advance(self, now: float) -> float:
        """Advance to the next event, apply it, and return its time."""
        at = min([*self._cycles_due, *(end for end, _ in self._end_heap[:1])], default=float("inf"))
        self._cycles_due = [due for due in self._cycles_due if due > at]
        if at >= TERMINATION_SECONDS:
            self._cluster.end_terminating()
        until = at * (1 + MERGED_PART)
        while self._end_heap and self._end_heap[0][0] <= until < _HORIZON:
            end, name = heapq.heappop(self._end_heap)
            at = end
            # A gang that was evicted and has started again has another end by now.
            if self._ends.get(name) == end:
                del self._ends[name]
                self._cluster.end(name)
        return max(now, at)

    def _apply(self, decision: Decision, now: float) -> None:
        at = self._base.now + dt.timedelta(seconds=now)
        match decision:
            case Admit(name):
                self._cluster.apply(decision, at)
                self._ends[name] = now + self._run_times[name]
                heapq.heappush(self._end_heap, (self._ends[name], name))
            case Resize():
                self._cluster.apply(decision, at)
                self._cycles_due.append(now + TERMINATION_SECONDS)
            case Evict(name):
                self._cluster.apply(decision, at)
                self._run_times[name] = self._ends.pop(name) - now
                self._cycles_due.append(now + TERMINATION_SECONDS)
            case RequeueAt(moment) if moment > at:
                self._cycles_due.append((moment - self._base.now).total_seconds())
