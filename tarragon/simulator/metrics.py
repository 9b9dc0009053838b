"""The figures by which policies are compared."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from tarragon.simulator.fairness import fairness_shares
from tarragon.simulator.results import PolicyResult, WorkloadResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Of times in seconds."""

    mean: float
    median: float
    p95: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Distribution:
        ordered = sorted(values)
        return cls(
            mean=fmean(ordered),
            median=_quantile(ordered, 0.5),
            p95=_quantile(ordered, 0.95),
            p99=_quantile(ordered, 0.99),
            max=ordered[-1],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The figures of one policy, over all jobs of all workloads."""

    jobs: int
    jct: Distribution
    """Job completion times: from submission to end."""
    queueing: Distribution
    """From submission to the first start."""
    makespan: float
    """The longest of all workloads."""
    allocated: float
    """The share of all devices that jobs held, until the last job ended."""
    progress: float
    """The share of what all devices could have done, each working alone."""
    resizes: float
    """Per job."""
    evictions: float
    """Per job."""
    jain: float
    """Jain's index of the slowdowns (completion time by run time alone): 1 if all jobs were slowed down alike."""
    above_fair_share: float
    """The part of its time that a job had more than its share of the devices, in the mean. See `fairness.py`."""
    below_fair_share: float
    rounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlock:
    """What is said of a scheduler that leaves jobs waiting for ever. Means over the others would praise it."""

    jobs: int
    ended: int
    deadlocked_workloads: int


def deadlock_of(result: PolicyResult) -> Deadlock | None:
    ended, unfinished = len(result.jobs), sum(workload.unfinished for workload in result.workloads)
    deadlocked = sum(workload.unfinished > 0 for workload in result.workloads)
    return Deadlock(jobs=ended + unfinished, ended=ended, deadlocked_workloads=deadlocked) if deadlocked else None


def summarize(result: PolicyResult) -> Summary:
    jobs = result.jobs
    shares = fairness_shares(result.workloads)
    capacity = sum(workload.makespan * workload.devices for workload in result.workloads)
    return Summary(
        jobs=len(jobs),
        jct=Distribution.of(job.completion_time for job in jobs),
        queueing=Distribution.of(job.queueing_time for job in jobs),
        makespan=max(workload.makespan for workload in result.workloads),
        allocated=sum(map(_device_seconds, result.workloads)) / capacity,
        progress=sum(job.one_device_seconds for job in jobs) / capacity,
        resizes=fmean(job.resizes for job in jobs),
        evictions=fmean(job.evictions for job in jobs),
        jain=jains_index([job.completion_time / job.run_time for job in jobs]),
        above_fair_share=shares.above,
        below_fair_share=shares.below,
        rounds=sum(workload.rounds for workload in result.workloads),
    )


def jains_index(values: Sequence[float]) -> float:
    """Return Jain's fairness index: 1 if all values are equal, 1/n if one of n has everything."""
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values))


def _device_seconds(result: WorkloadResult) -> float:
    return sum(before.allocated * (after.at - before.at) for before, after in pairwise(result.samples))


def _quantile(ordered: Sequence[float], part: float) -> float:
    """Return the smallest value that at least this part of the values does not exceed (nearest rank)."""
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]
