"""The baselines: what is typical of each, and the figures that an independent simulator found."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarragon.scheduling.api.rules import POLICY_NAMES
from tarragon.simulator.baselines.names import BASELINE_NAMES
from tarragon.simulator.baselines.registry import BASELINES
from tarragon.simulator.comparison import Comparison
from tarragon.simulator.engine import SimulatedCluster, Timing
from tarragon.simulator.metrics import Deadlock, deadlock_of, summarize
from tarragon.simulator.results import JobResult, PolicyResult
from tarragon.simulator.speedups import AmdahlSpeed, with_run_time
from tarragon.simulator.traces.reading import Selection, read_speeds, read_workloads
from tarragon.simulator.workload import BOUNDS_RULES, BoundsRule, TrainingJob, Workload, with_bounds

TWO_NODES = SimulatedCluster.of_equal(2, 4)
needs_traces = pytest.mark.skipif(not os.environ.get("TARRAGON_TRACES"), reason="TARRAGON_TRACES names no folder")


def job(name: str, at: float = 0, size: int = 4, run_time: float = 600) -> TrainingJob:
    speed = with_run_time(AmdahlSpeed(0.95), run_time, (-(-size // 4), size))
    return TrainingJob(name=name, kind="", submitted_at=at, requested=size, minimum=size, maximum=size, speed=speed)


def run(name: str, jobs: Sequence[TrainingJob], cluster: SimulatedCluster = TWO_NODES) -> PolicyResult:
    workload = Workload(name="w", jobs=jobs)
    comparison = Comparison(workloads=[workload], cluster=cluster, timing=Timing(), is_progress_reported=False)
    return comparison.run(name)


def jobs_of(name: str, *jobs: TrainingJob) -> dict[str, JobResult]:
    return {one.name: one for one in run(name, jobs).jobs}


def test_the_names_are_those_of_the_registry_and_none_of_the_operators() -> None:
    assert list(BASELINE_NAMES) == list(BASELINES)
    assert not set(BASELINE_NAMES) & set(POLICY_NAMES)


def test_the_docs_name_every_baseline() -> None:
    page = (Path(__file__).parents[2] / "docs" / "howto" / "simulate.md").read_text()

    assert [name for name in BASELINES if f"| `{name}` |" not in page] == []


ROWS = st.tuples(st.integers(0, 500), st.integers(1, 8), st.integers(60, 2000))
JOBS = st.lists(ROWS, min_size=1, max_size=12).map(
    lambda rows: [job(f"j{index:02}", at, size, length) for index, (at, size, length) in enumerate(rows)]
)


@given(JOBS, st.sampled_from(sorted(set(BASELINES) - {"kube-scheduler-mixed"})), st.sampled_from(BOUNDS_RULES))
def test_every_job_ends_and_equal_input_gives_equal_results(
    jobs: Sequence[TrainingJob], name: str, rule: BoundsRule
) -> None:
    bounded = [with_bounds(each, rule) for each in jobs]

    result = run(name, bounded)

    assert len(result.jobs) == len(jobs)
    assert deadlock_of(result) is None
    assert result == run(name, bounded)


@given(
    JOBS,
    st.sampled_from(sorted({*BASELINES, *POLICY_NAMES} - {"kube-scheduler", "kube-scheduler-mixed"})),
    st.integers(1, 3),
    st.sampled_from(BOUNDS_RULES),
)
def test_replicas_with_several_devices_are_not_divided_among_nodes(
    jobs: Sequence[TrainingJob], name: str, devices: int, rule: BoundsRule
) -> None:
    small = [replace(with_bounds(each, rule), devices=devices) for each in jobs if each.minimum * devices <= 4]
    if not small:
        return
    unequal = SimulatedCluster({"large": 7, "small": 5})

    result = run(name, small, unequal)

    assert deadlock_of(result) is None
    assert len(result.jobs) == len(small)
    for sample in result.workloads[0].samples:
        assert sample.allocated <= 7 // devices * devices + 5 // devices * devices


def test_half_gangs_of_interleaved_pods_hold_all_devices_for_ever() -> None:
    gangs = [job("a", size=6), job("b", size=6)]

    found = deadlock_of(run("kube-scheduler-mixed", gangs))

    assert found == Deadlock(jobs=2, ended=0, deadlocked_workloads=1)
    assert deadlock_of(run("kube-scheduler", gangs)) is None


def test_a_half_gang_of_kube_scheduler_keeps_devices_from_a_job_that_would_fit() -> None:
    jobs = [job("a", size=6), job("b", at=1, size=6), job("c", at=2, size=2)]

    assert jobs_of("kube-scheduler", *jobs)["c"].queueing_time > 600
    assert jobs_of("plain-backfill", *jobs)["c"].queueing_time == 0


def test_the_head_of_a_strict_queue_blocks_what_would_fit() -> None:
    jobs = [job("a", size=6), job("b", at=1, size=6), job("c", at=2, size=2)]

    found = jobs_of("strict-fifo", *jobs)

    assert found["c"].started_at == found["b"].started_at == found["a"].ended_at


def test_with_easy_only_a_job_that_does_not_delay_the_head_passes_it() -> None:
    jobs = [job("a", size=6), job("b", at=1, size=8), job("short", at=2, size=1, run_time=300)]
    long = job("long", at=3, size=1, run_time=3000)

    found = jobs_of("easy", *jobs, long)

    assert found["short"].queueing_time == 0
    assert found["b"].started_at == found["a"].ended_at
    assert found["long"].started_at >= found["b"].ended_at
    assert jobs_of("plain-backfill", *jobs, long)["b"].started_at > found["b"].started_at


def test_tiresias_stops_a_job_that_has_had_its_share_for_a_new_one() -> None:
    old = job("old", size=8, run_time=4 * 3600)

    before = jobs_of("tiresias", old, job("new", at=3600, size=8))
    after = jobs_of("tiresias", old, job("new", at=7500, size=8))

    assert before["new"].started_at == pytest.approx(7200, abs=61)
    assert after["new"].queueing_time == 0
    assert (after["old"].evictions, after["new"].evictions) == (1, 0)


@pytest.mark.parametrize(("name", "first"), [("srpt", "short"), ("srsf", "small")])
def test_an_oracle_runs_first_what_has_least_left(name: str, first: str) -> None:
    found = jobs_of(name, job("short", size=8, run_time=600), job("small", size=1, run_time=1200))

    assert found[first].queueing_time == 0
    assert sum(one.queueing_time > 0 for one in found.values()) == 1


def test_dragon_starts_nothing_while_an_old_head_cannot_be_satisfied() -> None:
    jobs = [job("a", size=6, run_time=6000), job("head", at=60, size=8), job("small", at=120, size=1)]

    assert jobs_of("dragon-as-coded", *jobs)["small"].started_at > 6000
    assert jobs_of("plain-backfill", *jobs)["small"].queueing_time == 0


def test_dragon_grows_a_job_beyond_its_maximum() -> None:
    grows = replace(job("a", size=2, run_time=6000), minimum=1, maximum=5)

    sizes = [change.replicas for change in jobs_of("dragon-as-coded", grows)["a"].sizes]

    assert max(sizes) > 5


def test_the_elastic_oracle_gives_the_job_that_is_nearly_done_more() -> None:
    long = with_bounds(job("long", size=4, run_time=20_000), "wide")
    short = with_bounds(job("short", at=100, size=4, run_time=2000), "wide")

    def size_of(name: str, policy: str) -> int:
        return jobs_of(policy, long, short)[name].sizes[0].replicas

    assert size_of("short", "elastic-oracle") > size_of("short", "pollux-like") == 4


FIGURES: Sequence[tuple[str, BoundsRule, float | None]] = (
    ("kube-scheduler", "rigid", 7205),
    ("kube-scheduler-mixed", "rigid", None),
    ("strict-fifo", "rigid", 7394),
    ("plain-backfill", "rigid", 4251),
    ("easy", "rigid", 4095),
    ("dragon-as-coded", "spec", 4126),
    ("tiresias", "rigid", 2305),
    ("srpt", "rigid", 2173),
    ("srsf", "rigid", 2161),
    ("pollux-like", "wide", 2555),
    ("elastic-oracle", "spec", 2015),
)


@needs_traces
@pytest.mark.parametrize(("name", "rule", "mean"), FIGURES)
def test_pollux_first_workload_takes_what_it_took_before(name: str, rule: BoundsRule, mean: float | None) -> None:
    folder = Path(os.environ["TARRAGON_TRACES"])
    speeds = read_speeds(folder / "pollux_speed.csv.gz", "fixed")
    [found] = read_workloads(folder / "pollux_jobs.csv.gz", Selection(workloads=[1], speeds=speeds))

    result = run(name, [with_bounds(each, rule) for each in found.jobs], SimulatedCluster.of_equal(16, 4))

    if mean is None:
        assert deadlock_of(result) is not None
    else:
        assert summarize(result).jct.mean == pytest.approx(mean, rel=0.005)
