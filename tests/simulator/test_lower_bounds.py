"""The lower bounds against closed forms, and against what schedulers reach."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tarragon.cli.main import root_command
from tarragon.cli.options.settings import GlobalOptions
from tarragon.simulator.comparison import Comparison
from tarragon.simulator.engine import SimulatedCluster, Timing
from tarragon.simulator.hull import HullPoint, concave_hull
from tarragon.simulator.lower_bounds import MAX_LP_JOBS, lower_bounds, why_no_lp
from tarragon.simulator.metrics import summarize
from tarragon.simulator.relaxation import Curve, certified_bound
from tarragon.simulator.speedups import AmdahlSpeed, with_run_time
from tarragon.simulator.traces.reading import Selection, read_speeds, read_workloads
from tarragon.simulator.workload import BOUNDS_RULES, BoundsRule, TrainingJob, Workload, with_bounds

TWO_NODES = SimulatedCluster.of_equal(2, 4)
needs_traces = pytest.mark.skipif(not os.environ.get("TARRAGON_TRACES"), reason="TARRAGON_TRACES names no folder")


def job(name: str, at: float = 0, size: int = 8, run_time: float = 600) -> TrainingJob:
    speed = with_run_time(AmdahlSpeed(0.95), run_time, (-(-size // 4), size))
    return TrainingJob(name=name, kind="", submitted_at=at, requested=size, minimum=size, maximum=size, speed=speed)


def test_the_hull_leaves_out_what_a_mixture_of_others_exceeds() -> None:
    points = [HullPoint(1, 1.0), HullPoint(2, 1.2), HullPoint(4, 4.0), HullPoint(5, 3.9)]

    assert concave_hull(points) == [HullPoint(0, 0.0), HullPoint(4, 4.0)]


def test_a_single_job_can_be_no_faster_than_its_start_and_its_run_time() -> None:
    found = lower_bounds([Workload(name="w", jobs=[job("a", at=100)])], TWO_NODES, 30)

    assert found.alone == found.srpt_fluid == pytest.approx(630)
    assert found.lp == pytest.approx(630, rel=0.01)


def test_of_two_jobs_that_need_all_devices_one_waits_for_the_shorter() -> None:
    jobs = [job("a", run_time=900), job("b", run_time=300)]

    found = lower_bounds([Workload(name="w", jobs=jobs)], TWO_NODES, 0)

    assert found.alone == pytest.approx(600)
    assert found.srpt_fluid == pytest.approx((300 + 1200) / 2)
    assert found.lp is not None
    assert 600 < found.lp <= 750


def test_any_prices_give_a_bound_that_holds() -> None:
    curves = [Curve.of(0.0, [HullPoint(0, 0.0), HullPoint(8, 1 / 600)])] * 2
    edges = np.array([0.0, 300.0, 1200.0, 5000.0])

    for prices in ([0.0, 0.0, 0.0], [0.1, 0.05, 0.0], [9.0, 0.0, 3.0]):
        assert certified_bound(curves, 8, edges, np.array(prices)) <= 600 + 1200 + 1e-6


ROWS = st.tuples(st.integers(0, 900), st.integers(1, 8), st.integers(60, 3000))


@given(st.lists(ROWS, min_size=1, max_size=8), st.sampled_from(BOUNDS_RULES), st.booleans())
def test_no_scheduler_is_below_a_bound(rows: Sequence[tuple[int, int, int]], rule: BoundsRule, oracle: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
    jobs = [with_bounds(job(f"j{index}", *row), rule) for index, row in enumerate(rows)]
    workloads = [Workload(name="w", jobs=jobs)]
    run = Comparison(workloads=workloads, cluster=TWO_NODES, timing=Timing(), is_progress_reported=True)

    found = lower_bounds(workloads, TWO_NODES, Timing().restart)

    mean = summarize(run.run("elastic-oracle" if oracle else "srpt")).jct.mean
    assert max(found.alone, found.srpt_fluid, found.lp or 0) <= mean + 1e-6


def test_a_large_workload_has_no_linear_program_and_says_so() -> None:
    jobs = [job(f"j{index}", at=index) for index in range(MAX_LP_JOBS + 1)]
    workloads = [Workload(name="w", jobs=jobs)]

    assert lower_bounds(workloads, TWO_NODES, 30).lp is None
    assert "2,001 jobs" in why_no_lp(workloads)


def test_the_command_prints_the_bounds_beside_the_policies(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("name,submit_s,replicas,duration_s\na,0,4,600\n")

    text, table = (
        CliRunner().invoke(root_command, ["simulate", str(trace), *form], obj=GlobalOptions()).stdout
        for form in (["-o", "json"], [])
    )

    assert json.loads(text)["lower_bounds"]["alone"] == pytest.approx(630)
    assert "bound: alone" in table


@needs_traces
@pytest.mark.parametrize(
    ("rule", "alone", "fluid", "least", "published"),
    [("rigid", 1746, 1137, 2264, 2223), ("wide", 1415, 829, 1931, 1887)],
)
def test_the_pollux_workloads_have_the_bounds_that_an_independent_program_found(
    rule: BoundsRule, alone: float, fluid: float, least: float, published: float
) -> None:
    folder = Path(os.environ["TARRAGON_TRACES"])
    speeds = read_speeds(folder / "pollux_speed.csv.gz", "fixed")
    workloads = [
        Workload(name=each.name, jobs=[with_bounds(one, rule) for one in each.jobs])
        for each in read_workloads(folder / "pollux_jobs.csv.gz", Selection(speeds=speeds))
    ]

    found = lower_bounds(workloads, SimulatedCluster.of_equal(16, 4), 0)

    assert (found.alone, found.srpt_fluid) == pytest.approx((alone, fluid), abs=1)
    assert found.lp == pytest.approx(least, rel=0.002)
    assert found.lp == pytest.approx(published, rel=0.03)
