"""The charts of a report. Each is bounded in size, however many jobs there are."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from tarragon.simulator.report.svg import BOTTOM, COLOURS, TOP, Axis, Chart, LogAxis, Point, steps_of
from tarragon.simulator.results import JobResult, PolicyResult, SizeChange, WorkloadResult

POINTS = 240
"""Of each line."""
TOP_JOBS = 11
"""Jobs that have a colour of their own."""
ROWS = 80
"""Jobs whose sizes are drawn."""
CHANGES = 40
"""Sizes of each of them."""
_HOUR = 3600.0


def completion_times(results: Sequence[PolicyResult]) -> str:
    """Draw the share of the jobs that ended within a time."""
    times = [sorted(job.completion_time for job in result.jobs) for result in results]
    low, high = max(1.0, min(each[0] for each in times)), max(each[-1] for each in times)
    ticks = [(value, text) for value, text in _LOG_TICKS if low <= value <= high]
    chart = Chart(LogAxis(low, max(high, low * 1.01), ticks), Axis(0, 1, [(i / 4, f"{25 * i} %") for i in range(5)]))
    lines = (
        chart.line(_distribution(ordered, _submitted(result)), colour_of(index), result.policy)
        for index, (result, ordered) in enumerate(zip(results, times, strict=True))
    )
    return chart.drawn("share of jobs that ended within a time", lines)


def queue_lengths(results: Sequence[PolicyResult]) -> str:
    """Draw how many jobs of the first workload waited."""
    found = [result.workloads[0] for result in results]
    queues = [_waiting(each) for each in found]
    chart = Chart(_hours(max(map(_end, found))), _numbers(max(value for queue in queues for _, value in queue)))
    lines = (
        chart.line(queue, colour_of(index), result.policy)
        for index, (result, queue) in enumerate(zip(results, queues, strict=True))
    )
    return chart.drawn("waiting jobs over time", lines)


def devices_by_job(workload: WorkloadResult) -> str:
    """Draw how many devices the jobs that used most held, and the others together."""
    moments = _moments(_end(workload))
    largest = sorted(workload.jobs, key=_device_seconds, reverse=True)
    top = largest[:TOP_JOBS]
    layers = [(job.name, _sizes_at(job, moments)) for job in top]
    rest = [sum(sizes) for sizes in zip(*(_sizes_at(job, moments) for job in largest[TOP_JOBS:]), strict=True)]
    if rest:
        layers.append((f"{len(largest) - TOP_JOBS} other jobs", rest))
    chart = Chart(_hours(_end(workload)), _numbers(workload.devices))
    return chart.drawn("GPUs over time by job", _stacked(chart, moments, layers))


def sizes_of_jobs(workload: WorkloadResult) -> str:
    """Draw a row for each of the jobs that used most: from submission to end, as thick as it is large."""
    chosen = sorted(workload.jobs, key=_device_seconds, reverse=True)[:ROWS]
    chosen.sort(key=lambda job: (job.submitted_at, job.name))
    thickest = max(change.replicas for job in chosen for change in job.sizes)
    chart = Chart(_hours(_end(workload)), Axis(0, len(chosen), []), TOP + BOTTOM + 11.0 * len(chosen))
    bars = (bar for row, job in enumerate(chosen) for bar in _row(chart, job, len(chosen) - row - 0.5, thickest))
    return chart.drawn("sizes of each job over time", bars)


def colour_of(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


_LOG_TICKS = (
    *((1.0, "1 s"), (10.0, "10 s"), (60.0, "1 min"), (600.0, "10 min"), (3600.0, "1 h"), (36_000.0, "10 h")),
    *((360_000.0, "100 h"), (3_600_000.0, "1,000 h")),
)


def _submitted(result: PolicyResult) -> int:
    """Return the number of all jobs, also of those that never end: in a deadlock, the line stays below 100 %."""
    return len(result.jobs) + sum(workload.unfinished for workload in result.workloads)


def _distribution(ordered: Sequence[float], submitted: int) -> Sequence[Point]:
    count = len(ordered)
    ranks = sorted({min(count - 1, index * count // POINTS) for index in range(POINTS)} | {count - 1})
    return [(ordered[rank], (rank + 1) / submitted) for rank in ranks]


def _waiting(workload: WorkloadResult) -> Sequence[Point]:
    """Return the longest queue in each of some equal spans of time."""
    end = _end(workload)
    longest = [0] * (POINTS + 1)
    for sample in workload.samples:
        span = min(POINTS, int(sample.at / (end or 1.0) * POINTS))
        longest[span] = max(longest[span], sample.waiting)
    return [(end * span / POINTS, float(count)) for span, count in enumerate(longest)]


def _row(chart: Chart, job: JobResult, middle: float, thickest: int) -> Iterator[str]:
    half = 0.04
    about = (
        f"{job.name}: requested {job.requested}, waited {job.queueing_time:,.0f} s, took {job.completion_time:,.0f} s"
    )
    yield chart.bar((job.submitted_at, middle - half), (job.ended_at, middle + half), "var(--soft)", about)
    for change, following in pairwise(_thinned(job)):
        if change.replicas:
            half = 0.08 + 0.4 * change.replicas / thickest
            title = f"{job.name}: {change.replicas} on {change.nodes} nodes"
            yield chart.bar((change.at, middle - half), (following.at, middle + half), COLOURS[0], title)


def _thinned(job: JobResult) -> Sequence[SizeChange]:
    """Return the sizes, or, of a job with many, those at equally distant moments of its life."""
    changes = [change.at for change in job.sizes]
    if len(changes) <= CHANGES:
        return job.sizes
    first, last = changes[0], changes[-1]
    moments = (first + (last - first) * index / CHANGES for index in range(CHANGES + 1))
    return [replace(job.sizes[bisect_right(changes, moment) - 1], at=moment) for moment in moments]


def _stacked(chart: Chart, moments: Sequence[float], layers: Sequence[tuple[str, Sequence[int]]]) -> Iterator[str]:
    below = [0] * len(moments)
    for index, (name, sizes) in enumerate(layers):
        above = [low + size for low, size in zip(below, sizes, strict=True)]
        outline = [*zip(moments, above, strict=True), *reversed(list(zip(moments, below, strict=True)))]
        yield chart.area(outline, colour_of(index), name)
        below = above


def _sizes_at(job: JobResult, moments: Sequence[float]) -> Sequence[int]:
    changes = [change.at for change in job.sizes]
    sizes = [0, *(change.replicas for change in job.sizes)]
    return [sizes[bisect_right(changes, moment)] * job.devices for moment in moments]


def _device_seconds(job: JobResult) -> float:
    return job.devices * sum(before.replicas * (after.at - before.at) for before, after in pairwise(job.sizes))


def _end(workload: WorkloadResult) -> float:
    return max(sample.at for sample in workload.samples)


def _moments(end: float) -> Sequence[float]:
    return [end * index / POINTS for index in range(POINTS + 1)]


def _hours(end: float) -> Axis:
    return Axis(0.0, end, [(hours * _HOUR, f"{hours:g} h") for hours in steps_of(end / _HOUR)])


def _numbers(high: float) -> Axis:
    return Axis(0.0, max(high, 1.0), [(value, f"{value:g}") for value in steps_of(max(high, 1.0))])
