"""Jobs that came, ran and ended, played once more through the real policy; and what was forecast of them meanwhile."""

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
from tarragon.job.model import Replica, ReplicaType
from tarragon.scheduling.api.decision import Place
from tarragon.scheduling.api.snapshot import Demand, Gang, NodeState, RunningGang, Snapshot
from tarragon.scheduling.explain.forecast import Forecast, Outlook, Unknown, forecast
from tarragon.scheduling.explain.runtime_estimates import Lengths, Life
from tarragon.scheduling.policies.fifo import fifo
from tarragon.scheduling.state.memory import Memory

BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
GPUS_A_NODE = 8
LOOKED_AT = 10
"""Gangs at the front of the queue: behind them nobody starts before they have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Seconds since the beginning; `gpus` on one node, or on several with all of theirs."""

    name: str
    came: float
    gpus: int
    seconds: float
    kinds: Sequence[Hashable] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was told of a gang at that moment, and when it started."""

    job: str
    at: float
    told: Forecast | Unknown
    started: float

    @property
    def is_early(self) -> bool:
        return isinstance(self.told, Forecast) and _at(self.started) < self.told.earliest

    @property
    def is_covered(self) -> bool:
        if isinstance(self.told, Unknown) or self.is_early:
            return False
        return self.told.latest is None or _at(self.started) <= self.told.latest


@dataclass(slots=True)
class Replay:
    """On nodes of 8 GPUs each. At every `every`-th event at which somebody waits, a forecast is asked for."""

    nodes: int
    every: int
    _jobs: dict[str, Job] = field(default_factory=dict)
    _free: dict[str, int] = field(default_factory=dict)
    _waiting: dict[str, Gang] = field(default_factory=dict)
    _running: dict[str, RunningGang] = field(default_factory=dict)
    _over: list[Life] = field(default_factory=list)
    _asked: list[tuple[str, float, Forecast | Unknown]] = field(default_factory=list)

    def of(self, jobs: Sequence[Job]) -> Sequence[Asked]:
        """Those of the questions whose jobs have started."""
        self._jobs = {job.name: job for job in jobs}
        names = [f"node-{number:04}" for number in range(self.nodes)]
        self._free = dict.fromkeys(names, GPUS_A_NODE)
        started: dict[str, float] = {}
        events = [(job.came, 0, job.name) for job in jobs if job.gpus <= GPUS_A_NODE * self.nodes]
        heapq.heapify(events)
        seen = 0
        while events:
            now, is_end, name = heapq.heappop(events)
            self._end(name) if is_end else self._come(self._jobs[name])
            for name in self._start(now):
                started[name] = now
                heapq.heappush(events, (now + self._jobs[name].seconds, 1, name))
            if self._waiting:
                seen += 1
                if seen % self.every == 0:
                    self._ask(now, seen)
        return [
            Asked(job=name, at=at, told=told, started=started[name])
            for name, at, told in self._asked
            if name in started
        ]

    def _come(self, job: Job) -> None:
        replicas, each = max(1, job.gpus // GPUS_A_NODE), min(job.gpus, GPUS_A_NODE)
        demand = Demand(
            type=ReplicaType.WORKER,
            each={NVIDIA_GPU: each},
            minimum=replicas,
            wish=replicas,
            eligible=frozenset(self._free),
        )
        self._waiting[job.name] = Gang(name=job.name, queued=_at(job.came), demands=[demand])

    def _end(self, name: str) -> None:
        gang = self._running.pop(name)
        self._move(gang.nodes, gang.demands, 1)
        job = self._jobs[name]
        self._over.append(Life(seconds=job.seconds, is_over=True, kinds=job.kinds))

    def _start(self, now: float) -> Iterator[str]:
        front = list(self._waiting.values())[:LOOKED_AT]
        if not front:
            return
        for decision in fifo(Snapshot(now=_at(now), nodes=self._states(), waiting=front), Memory()):
            if isinstance(decision, Place):
                gang = self._waiting.pop(decision.gang)
                self._running[gang.name] = RunningGang(
                    name=gang.name, demands=gang.demands, nodes=decision.nodes, elastic=False, admitted=_at(now)
                )
                self._move(decision.nodes, gang.demands, -1)
                yield gang.name

    def _move(self, nodes: Mapping[Replica, str], demands: Sequence[Demand], sign: int) -> None:
        [demand] = demands
        for node in nodes.values():
            self._free[node] += sign * demand.each[NVIDIA_GPU]

    def _states(self) -> Sequence[NodeState]:
        capacity = {NVIDIA_GPU: GPUS_A_NODE}
        return [NodeState(name=name, capacity=capacity, free={NVIDIA_GPU: free}) for name, free in self._free.items()]

    def _ask(self, now: float, number: int) -> None:
        front = list(self._waiting)[:LOOKED_AT]
        name = front[number * 7 % len(front)]
        ages = [
            Life(seconds=(_at(now) - gang.admitted).total_seconds(), is_over=False, kinds=self._kinds(gang.name))
            for gang in self._running.values()
            if gang.admitted is not None
        ]
        kinds = {name: self._kinds(name) for name in [*self._waiting, *self._running]}
        picture = Snapshot(
            now=_at(now),
            nodes=self._states(),
            waiting=list(self._waiting.values()),
            running=list(self._running.values()),
        )
        outlook = Outlook(lengths=Lengths([*self._over, *ages]), kinds=kinds)
        self._asked.append((name, now, forecast(name, picture, outlook, fifo)))

    def _kinds(self, name: str) -> Sequence[Hashable]:
        return self._jobs[name].kinds


def coverage(asked: Sequence[Asked]) -> float:
    """Of those of which something was told, the share that started within the band."""
    told = [each for each in asked if isinstance(each.told, Forecast)]
    return sum(each.is_covered for each in told) / max(1, len(told))


def synthetic(number: int, seed: int, apart: float) -> Sequence[Job]:
    """Of five families: most jobs are short, some run for days, and each family has lengths of its own."""
    chance = random.Random(seed)
    jobs: list[Job] = []
    came = 0.0
    for index in range(number):
        came += chance.expovariate(1 / apart)
        family = chance.choices(range(5), (30, 25, 20, 15, 10))[0]
        gpus = chance.choices((1, 2, 4, 8, 16), (40, 25, 15, 15, 5))[0]
        seconds = math.exp(chance.gauss(5.5 + family * 0.7, 1.2))
        kinds = (("family", family, gpus), ("family", family), ("gpus", gpus))
        jobs.append(Job(name=f"job-{index:05}", came=came, gpus=gpus, seconds=seconds, kinds=kinds))
    return jobs


PHILLY: Mapping[str, tuple[int, int, int]] = {
    "6c71a0": (5, 40, 3500),
    "11cb48": (1, 20, 3100),
    "6214e9": (7, 60, 4000),
}
"""Virtual clusters of the trace: on how many nodes their jobs wait, every how many events to ask, how many jobs."""


def philly(folder: Path, cluster: str, most: int) -> Sequence[Job]:
    """The first jobs of one of its virtual clusters; those that ran for no time are left out."""
    with gzip.open(folder / "philly_2weeks.csv.gz", "rt") as rows:
        mine = (row for row in csv.DictReader(rows) if row["vc"] == cluster and float(row["duration_s"]) > 0)
        return [
            Job(
                name=f"job-{int(row['job']):06}",
                came=float(row["submit_s"]),
                gpus=int(row["gpus"]),
                seconds=float(row["duration_s"]),
                kinds=(("gpus", row["gpus"]),),
            )
            for row in itertools.islice(mine, most)
        ]


def _at(seconds: float) -> dt.datetime:
    return BEGIN + dt.timedelta(seconds=seconds)
