"""Runs a scheduler over a workload in virtual time.

Jobs progress steadily between events: at the speed of their placement, after a pause at each start and resize. The
scheduler is asked whenever a job arrives or ends, at the moment that it asked for, and at the latest after an interval.
What a decision releases is free at once; the scheduler is then asked again at the same moment.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Protocol

from tarragon.base.errors import TarragonError
from tarragon.simulator.results import JobResult, Sample, SizeChange, WorkloadResult
from tarragon.simulator.workload import TrainingJob, Workload

DONE = 1e-9
"""A rest of a job below this is a rounding error."""
MAX_ROUNDS_AT_ONCE = 50
"""A scheduler that releases something in each round of one moment has to wait for the next event after so many."""

Placement = Mapping[str, int]
"""The number of replicas on each node."""


class SimulatedCluster:
    """The nodes, each with its devices."""

    def __init__(self, capacities: Mapping[str, int]) -> None:
        self.capacities = dict(capacities)
        """The number of devices by node."""
        self.devices = sum(self.capacities.values())
        self.largest_node = max(self.capacities.values())
        self._rooms: dict[int, Sequence[int]] = {}
        """By the devices of a replica, how many fit on the largest node, on the two largest, and so on."""

    @classmethod
    def of_equal(cls, nodes: int, devices_per_node: int) -> SimulatedCluster:
        return cls({f"node-{index:05}": devices_per_node for index in range(nodes)})

    def room(self, devices: int) -> int:
        """Return how many replicas with so many devices the empty cluster has room for."""
        return self._rooms_for(devices)[-1]

    def fewest_nodes(self, replicas: int, devices: int = 1) -> int:
        """Return on how many nodes so many replicas have room, if possible; otherwise, as if there were more nodes."""
        rooms = self._rooms_for(devices)
        if replicas > rooms[-1]:
            return len(rooms) - (rooms[-1] - replicas) // max(1, rooms[0])
        return bisect_left(rooms, replicas) + 1

    def _rooms_for(self, devices: int) -> Sequence[int]:
        if devices not in self._rooms:
            largest_first = sorted(self.capacities.values(), reverse=True)
            self._rooms[devices] = list(accumulate(count // devices for count in largest_first))
        return self._rooms[devices]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The times of the model, in seconds."""

    restart: float = 30.0
    """How long a job makes no progress after a start or a resize."""
    interval: float = 60.0
    """The scheduler is asked at least this often while there are jobs."""


@dataclass(slots=True, eq=False)
class ActiveJob:
    """A job that was submitted and has not ended. Schedulers read it; only the engine writes."""

    job: TrainingJob
    placement: Placement = field(default_factory=dict)
    size: int = 0
    """The number of its replicas."""
    speed: float = 0.0
    """The part of its work that it does in a second; half a gang does nothing."""
    remaining: float = 1.0
    """The part of its work that is left. On a real cluster only the job knows."""
    progresses_from: float = 0.0
    """The end of the pause after its start or resize."""
    first_started_at: float | None = None
    admitted_at: float = 0.0
    resized_at: float | None = None
    resizes: int = 0
    evictions: int = 0
    sizes: list[SizeChange] = field(default_factory=list)

    def place(self, placement: Placement) -> None:
        self.placement = {node: count for node, count in placement.items() if count}
        self.size = sum(self.placement.values())
        is_whole = self.size >= self.job.minimum
        devices = self.size * self.job.devices
        self.speed = self.job.speed.at(len(self.placement), devices) if is_whole and devices else 0.0

    def ends_at(self, now: float) -> float:
        return max(now, self.progresses_from) + max(0.0, self.remaining) / self.speed if self.speed else math.inf

    def result(self, now: float, cluster: SimulatedCluster) -> JobResult:
        job = self.job
        fewest = cluster.fewest_nodes(job.requested, job.devices)
        return JobResult(
            name=job.name,
            queue=job.queue,
            requested=job.requested,
            maximum=job.maximum,
            devices=job.devices,
            submitted_at=job.submitted_at,
            started_at=now if self.first_started_at is None else self.first_started_at,
            ended_at=now,
            run_time=1 / job.speed.at(fewest, job.requested * job.devices),
            one_device_seconds=1 / job.speed.at(1, 1),
            sizes=tuple(self.sizes),
            resizes=self.resizes,
            evictions=self.evictions,
        )


@dataclass(frozen=True, slots=True, eq=False)
class ClusterView:
    """What a scheduler may look at. The jobs are in the order of their submission."""

    now: float
    cluster: SimulatedCluster
    free: Mapping[str, int]
    """The free devices of each node."""
    jobs: Mapping[str, ActiveJob]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a scheduler wants to change."""

    placements: Mapping[str, Placement] = field(default_factory=dict)
    """The new placement of each job that gets another one; an empty placement stops the job."""
    wake_at: float = math.inf
    """Ask again at this moment even if nothing happens until then."""


class DeadlockError(TarragonError):
    """Jobs wait and nothing will ever happen. `result` is what happened until then."""

    def __init__(self, result: WorkloadResult, waiting: str) -> None:
        self.result = result
        super().__init__(
            f"the simulation of {result.workload} can't end: {result.unfinished} jobs wait and nothing runs",
            why=f"the scheduler starts neither {waiting} nor another job that waits",
            remedy="use more or larger nodes (--nodes, --gpus-per-node), or another policy",
        )


class Scheduler(Protocol):
    """Decides which jobs run where. It may hold devices for a job below its minimum, which then makes no progress, or
    above its maximum: DRAGON did. The operator's own policies are validated before (`policy_scheduler.py`).
    """

    def decide(self, view: ClusterView) -> Plan: ...

    def progressed(self, active: ActiveJob, seconds: float, part: float) -> None:
        """The job has worked for these seconds and done this part of its work."""
        ...

    def ended(self, active: ActiveJob) -> None:
        """The job has done all of its work."""
        ...


def simulate(workload: Workload, cluster: SimulatedCluster, scheduler: Scheduler, timing: Timing) -> WorkloadResult:
    """Run the scheduler over the workload until all jobs have ended. Raises DeadlockError if that never happens."""
    return _Run(workload, cluster, scheduler, timing).result()


class _Run:
    def __init__(self, workload: Workload, cluster: SimulatedCluster, scheduler: Scheduler, timing: Timing) -> None:
        self._workload, self._cluster, self._scheduler, self._timing = workload, cluster, scheduler, timing
        self._arrivals = deque(sorted(workload.jobs, key=lambda job: (job.submitted_at, job.name)))
        self._active: dict[str, ActiveJob] = {}
        self._free = dict(cluster.capacities)
        self._ended: list[JobResult] = []
        self._samples: list[Sample] = []
        self._now = 0.0
        self._next_round = 0.0
        self._wake_at = math.inf
        self._rounds = 0

    def result(self) -> WorkloadResult:
        while self._arrivals or self._active:
            self._advance(self._next_event())
            self._end_jobs()
            self._submit_jobs()
            self._schedule()
            self._samples.append(self._sample())
        return self._result()

    def _result(self) -> WorkloadResult:
        return WorkloadResult(
            workload=self._workload.name,
            devices=self._cluster.devices,
            jobs=sorted(self._ended, key=lambda job: (job.submitted_at, job.name)),
            samples=self._samples,
            rounds=self._rounds,
            unfinished=len(self._active),
        )

    def _next_event(self) -> float:
        arrival = self._arrivals[0].submitted_at if self._arrivals else math.inf
        end = min((active.ends_at(self._now) for active in self._active.values() if active.speed), default=math.inf)
        if not self._arrivals and end == math.inf and self._wake_at == math.inf:
            raise DeadlockError(self._result(), next(iter(self._active)))
        asked = min(self._next_round, self._wake_at) if self._active else math.inf
        return min(arrival, end, max(asked, self._now))

    def _advance(self, then: float) -> None:
        for active in self._active.values():
            if not active.speed:
                continue
            began = max(self._now, active.progresses_from)
            if then > began:
                active.remaining -= (then - began) * active.speed
                self._scheduler.progressed(active, then - began, (then - began) * active.speed)
        self._now = then
        if then >= self._wake_at:
            self._wake_at = math.inf

    def _end_jobs(self) -> None:
        for active in [each for each in self._active.values() if each.placement and each.remaining <= DONE]:
            self._place(active, {})
            del self._active[active.job.name]
            self._ended.append(active.result(self._now, self._cluster))
            self._scheduler.ended(active)

    def _submit_jobs(self) -> None:
        while self._arrivals and self._arrivals[0].submitted_at <= self._now:
            job = self._arrivals.popleft()
            self._active[job.name] = ActiveJob(job)

    def _schedule(self) -> None:
        for _ in range(MAX_ROUNDS_AT_ONCE):
            if not self._round():
                break
        self._next_round = self._now + self._timing.interval

    def _round(self) -> bool:
        """Ask the scheduler once, and return whether what it changed released devices."""
        self._rounds += 1
        plan = self._scheduler.decide(ClusterView(self._now, self._cluster, self._free, self._active))
        if plan.wake_at < math.inf:
            # A moment that has passed means the next one: virtual time has to move on.
            self._wake_at = min(self._wake_at, max(plan.wake_at, self._now + 1))
        changes = [(self._active[name], placement) for name, placement in plan.placements.items()]
        is_released = any(_gives_back(active.placement, placement) for active, placement in changes)
        # First all that is given back: a scheduler may pass devices from one job to another in one plan.
        for active, placement in changes:
            self._release(active)
            self._resize(active, placement)
        self._require_sound(active for active, _ in changes)
        return is_released

    def _resize(self, active: ActiveJob, placement: Placement) -> None:
        was_running, before = bool(active.placement), active.placement
        self._take(active, placement)
        if dict(before) == dict(placement):
            return
        active.progresses_from = self._now + self._timing.restart
        if not placement:
            active.evictions += 1
        elif was_running:
            active.resizes += 1
            active.resized_at = self._now
        else:
            active.admitted_at, active.resized_at = self._now, None
            active.first_started_at = self._now if active.first_started_at is None else active.first_started_at
        active.sizes.append(SizeChange(self._now, active.size, len(active.placement)))

    def _place(self, active: ActiveJob, placement: Placement) -> None:
        self._release(active)
        self._take(active, placement)
        active.sizes.append(SizeChange(self._now, active.size, len(active.placement)))

    def _release(self, active: ActiveJob) -> None:
        for node, count in active.placement.items():
            self._free[node] += count * active.job.devices

    def _take(self, active: ActiveJob, placement: Placement) -> None:
        active.place(placement)
        for node, count in active.placement.items():
            self._free[node] -= count * active.job.devices

    def _require_sound(self, changed: Iterable[ActiveJob]) -> None:
        """Raise ValueError, naming the bug of the scheduler, if a node is oversold."""
        for active in changed:
            for node in active.placement:
                if self._free[node] < 0:
                    raise ValueError(f"{node} is oversold by {-self._free[node]} devices, also to {active.job.name}")

    def _sample(self) -> Sample:
        waiting = sum(not active.placement for active in self._active.values())
        return Sample(self._now, waiting, self._cluster.devices - sum(self._free.values()))


def _gives_back(before: Placement, after: Placement) -> bool:
    return bool(Counter(before) - Counter(after))
