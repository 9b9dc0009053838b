"""Replay of the jobs of a trace through the real policy, with forecasts of their start while they wait."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import heapq
import itertools
import math
import random
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tarragon.base.resources import NVIDIA_GPU
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.job.model import Replica
from tarragon.scheduling.api.decision import Admit
from tarragon.scheduling.api.snapshot import Demand, NodeState, RunningGang, Snapshot, WaitingGang
from tarragon.scheduling.explain.forecast import Forecast, NoForecast, RunTimeModel, forecast
from tarragon.scheduling.explain.runtime_estimates import RunTime, RunTimeEstimates
from tarragon.scheduling.policies.fifo import fifo
from tarragon.scheduling.state.memory import Memory

BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
GPUS_A_NODE = 8
QUEUE_FRONT = 10
"""The number of gangs at the front of the queue that are scheduled; gangs behind them never start first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """A job of a trace. Times are in seconds since its beginning. `gpus` are on one node, or all GPUs of several."""

    name: str
    came: float
    gpus: int
    seconds: float
    kinds: Sequence[Hashable] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastResult:
    """The forecast of a gang at a moment, and the time at which the gang started."""

    job: str
    at: float
    forecast: Forecast | NoForecast
    started: float

    @property
    def is_early(self) -> bool:
        return isinstance(self.forecast, Forecast) and _at(self.started) < self.forecast.earliest

    @property
    def is_covered(self) -> bool:
        if isinstance(self.forecast, NoForecast) or self.is_early:
            return False
        return self.forecast.latest is None or _at(self.started) <= self.forecast.latest


@dataclass(slots=True)
class Replay:
    """A replay on nodes of 8 GPUs each, with a forecast at each `every`-th event at which gangs wait."""

    nodes: int
    every: int
    _jobs: dict[str, TraceJob] = field(default_factory=dict)
    _free: dict[str, int] = field(default_factory=dict)
    _waiting: dict[str, WaitingGang] = field(default_factory=dict)
    _running: dict[str, RunningGang] = field(default_factory=dict)
    _finished: list[RunTime] = field(default_factory=list)
    _asked: list[tuple[str, float, Forecast | NoForecast]] = field(default_factory=list)

    def of(self, jobs: Sequence[TraceJob]) -> Sequence[ForecastResult]:
        """Replay the jobs. Returns the forecasts of jobs that have started."""
        self._jobs = {job.name: job for job in jobs}
        names = [f"node-{number:04}" for number in range(self.nodes)]
        self._free = dict.fromkeys(names, GPUS_A_NODE)
        started: dict[str, float] = {}
        events = [(job.came, 0, job.name) for job in jobs if job.gpus <= GPUS_A_NODE * self.nodes]
        heapq.heapify(events)
        event_count = 0
        while events:
            now, is_end, name = heapq.heappop(events)
            self._end(name) if is_end else self._submit(self._jobs[name])
            for name in self._start(now):
                started[name] = now
                heapq.heappush(events, (now + self._jobs[name].seconds, 1, name))
            if self._waiting:
                event_count += 1
                if event_count % self.every == 0:
                    self._ask(now, event_count)
        return [
            ForecastResult(job=name, at=at, forecast=forecast, started=started[name])
            for name, at, forecast in self._asked
            if name in started
        ]

    def _submit(self, job: TraceJob) -> None:
        replicas, each = max(1, job.gpus // GPUS_A_NODE), min(job.gpus, GPUS_A_NODE)
        demand = Demand(
            type=WORKER,
            resources={NVIDIA_GPU: each},
            minimum=replicas,
            requested=replicas,
            eligible_nodes=frozenset(self._free),
        )
        self._waiting[job.name] = WaitingGang(name=job.name, queued_at=_at(job.came), demands=[demand])

    def _end(self, name: str) -> None:
        gang = self._running.pop(name)
        self._move(gang.nodes, gang.demands, 1)
        job = self._jobs[name]
        self._finished.append(RunTime(seconds=job.seconds, is_finished=True, kinds=job.kinds))

    def _start(self, now: float) -> Iterator[str]:
        front = list(self._waiting.values())[:QUEUE_FRONT]
        if not front:
            return
        for decision in fifo(Snapshot(now=_at(now), nodes=self._states(), waiting=front), Memory()):
            if isinstance(decision, Admit):
                gang = self._waiting.pop(decision.gang)
                self._running[gang.name] = RunningGang(
                    name=gang.name, demands=gang.demands, nodes=decision.nodes, is_elastic=False, admitted_at=_at(now)
                )
                self._move(decision.nodes, gang.demands, -1)
                yield gang.name

    def _move(self, nodes: Mapping[Replica, str], demands: Sequence[Demand], sign: int) -> None:
        [demand] = demands
        for node in nodes.values():
            self._free[node] += sign * demand.resources[NVIDIA_GPU]

    def _states(self) -> Sequence[NodeState]:
        capacity = {NVIDIA_GPU: GPUS_A_NODE}
        return [NodeState(name=name, capacity=capacity, free={NVIDIA_GPU: free}) for name, free in self._free.items()]

    def _ask(self, now: float, number: int) -> None:
        front = list(self._waiting)[:QUEUE_FRONT]
        name = front[number * 7 % len(front)]
        ages = [
            RunTime(
                seconds=(_at(now) - gang.admitted_at).total_seconds(), is_finished=False, kinds=self._kinds(gang.name)
            )
            for gang in self._running.values()
            if gang.admitted_at is not None
        ]
        kinds = {name: self._kinds(name) for name in [*self._waiting, *self._running]}
        state = Snapshot(
            now=_at(now),
            nodes=self._states(),
            waiting=list(self._waiting.values()),
            running=list(self._running.values()),
        )
        outlook = RunTimeModel(estimates=RunTimeEstimates([*self._finished, *ages]), kinds_by_gang=kinds)
        self._asked.append((name, now, forecast(name, state, outlook, fifo)))

    def _kinds(self, name: str) -> Sequence[Hashable]:
        return self._jobs[name].kinds


def coverage(asked: Sequence[ForecastResult]) -> float:
    """The share of forecasts in whose band the job started."""
    forecasts = [each for each in asked if isinstance(each.forecast, Forecast)]
    return sum(each.is_covered for each in forecasts) / max(1, len(forecasts))


def synthetic(number: int, seed: int, apart: float) -> Sequence[TraceJob]:
    """Random jobs of five families. Most jobs are short, some run for days; runtimes depend on the family."""
    rng = random.Random(seed)
    jobs: list[TraceJob] = []
    came = 0.0
    for index in range(number):
        came += rng.expovariate(1 / apart)
        family = rng.choices(range(5), (30, 25, 20, 15, 10))[0]
        gpus = rng.choices((1, 2, 4, 8, 16), (40, 25, 15, 15, 5))[0]
        seconds = math.exp(rng.gauss(5.5 + family * 0.7, 1.2))
        kinds = (("family", family, gpus), ("family", family), ("gpus", gpus))
        jobs.append(TraceJob(name=f"job-{index:05}", came=came, gpus=gpus, seconds=seconds, kinds=kinds))
    return jobs


PHILLY: Mapping[str, tuple[int, int, int]] = {
    "6c71a0": (5, 40, 3500),
    "11cb48": (1, 20, 3100),
    "6214e9": (7, 60, 4000),
}
"""Virtual clusters of the trace: the number of nodes, the events between two forecasts, and the number of jobs."""


def philly(folder: Path, cluster: str, most: int) -> Sequence[TraceJob]:
    """The first jobs of a virtual cluster, without jobs that ran for no time."""
    with gzip.open(folder / "philly_2weeks.csv.gz", "rt") as rows:
        cluster_rows = (row for row in csv.DictReader(rows) if row["vc"] == cluster and float(row["duration_s"]) > 0)
        return [
            TraceJob(
                name=f"job-{int(row['job']):06}",
                came=float(row["submit_s"]),
                gpus=int(row["gpus"]),
                seconds=float(row["duration_s"]),
                kinds=(("gpus", row["gpus"]),),
            )
            for row in itertools.islice(cluster_rows, most)
        ]


def _at(seconds: float) -> dt.datetime:
    return BEGIN + dt.timedelta(seconds=seconds)
