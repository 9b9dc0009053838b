"""For how long jobs have more or less than their share of the devices, by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tarragon.simulator.fairness import fairness_shares
from tarragon.simulator.results import JobResult, SizeChange, WorkloadResult


def job(name: str, submitted_at: float, *sizes: tuple[float, int], maximum: int = 8, devices: int = 1) -> JobResult:
    """A job that ends with its last change."""
    return JobResult(
        name=name,
        queue="",
        requested=1,
        maximum=maximum,
        devices=devices,
        submitted_at=submitted_at,
        started_at=sizes[0][0],
        ended_at=sizes[-1][0],
        run_time=1,
        one_device_seconds=1,
        sizes=[SizeChange(at, size, 1) for at, size in sizes],
        resizes=0,
        evictions=0,
    )


def shares(devices: int, jobs: Sequence[JobResult]) -> list[float]:
    workload = WorkloadResult(workload="w", devices=devices, jobs=jobs, samples=(), rounds=0)
    found = fairness_shares([workload])
    return [found.above, found.below]


def test_a_job_that_is_alone_has_its_fair_share_once_it_has_all_that_it_can_use() -> None:
    assert shares(8, [job("a", 0, (25, 4), (100, 0), maximum=4)]) == [0, 0.25]
    assert shares(8, [job("a", 0, (0, 4), (100, 0), maximum=8)]) == [0, 1]


def test_the_share_of_a_job_becomes_smaller_when_another_one_is_submitted() -> None:
    alone_for_half = [job("a", 0, (0, 8), (100, 0)), job("b", 50, (100, 8), (150, 0))]

    # a has twice its share from 50 to 100, while b has nothing.
    assert shares(8, alone_for_half) == pytest.approx([0.25, 0.25])


def test_sizes_next_to_a_share_that_is_not_whole_are_fair() -> None:
    sizes = 2, 2, 3, 3, 3, 3

    assert shares(16, [job(f"j{index}", 0, (0, size), (60, 0)) for index, size in enumerate(sizes)]) == [0, 0]
    unfair = [job(f"j{index}", 0, (0, size), (60, 0)) for index, size in enumerate((1, 4, *sizes[2:]))]
    assert shares(16, unfair) == pytest.approx([1 / 6, 1 / 6])


def test_the_share_is_counted_in_devices() -> None:
    assert shares(8, [job("a", 0, (0, 2), (60, 0), devices=4)]) == [0, 0]
    assert shares(8, [job("a", 0, (0, 1), (60, 0), devices=4)]) == [0, 1]
