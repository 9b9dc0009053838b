"""The simulator against closed forms, its own rules, and the figures of an independent simulator."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tarragon.base.errors import TarragonError
from tarragon.cli.main import root_command
from tarragon.cli.options.settings import GlobalOptions
from tarragon.cli.simulation.progress_bar import STEPS, Bar
from tarragon.scheduling.api.decision import Decision
from tarragon.scheduling.api.snapshot import Snapshot
from tarragon.scheduling.api.work import WorkEstimate
from tarragon.scheduling.policies import BLIND_TO_WORK, POLICIES
from tarragon.scheduling.state.memory import Memory
from tarragon.simulator.engine import ActiveJob, ClusterView, Placement, Plan, SimulatedCluster, Timing, simulate
from tarragon.simulator.metrics import Distribution, jains_index, summarize
from tarragon.simulator.policy_scheduler import Knowledge, NothingKnown, Observations, PolicyScheduler
from tarragon.simulator.results import PolicyResult, WorkloadResult
from tarragon.simulator.speedups import AmdahlSpeed, SpeedTable, with_run_time
from tarragon.simulator.traces.reading import Selection, read_speeds, read_workloads
from tarragon.simulator.workload import BOUNDS_RULES, TrainingJob, Workload, with_bounds

TWO_NODES = SimulatedCluster.of_equal(2, 4)
OWN = "name,submit_s,replicas,duration_s\n"
needs_traces = pytest.mark.skipif(not os.environ.get("TARRAGON_TRACES"), reason="TARRAGON_TRACES names no folder")


def job(name: str, at: float = 0, size: int = 4, run_time: float = 600) -> TrainingJob:
    placement = -(-size // 4), size
    speed = with_run_time(AmdahlSpeed(0.9), run_time, placement)
    return TrainingJob(name=name, kind="", submitted_at=at, requested=size, minimum=size, maximum=size, speed=speed)


def run(
    jobs: Sequence[TrainingJob], policy: str = "dragon", cluster: SimulatedCluster = TWO_NODES, *, reported: bool = True
) -> WorkloadResult:
    scheduler = PolicyScheduler(POLICIES[policy], cluster, Observations(is_progress_reported=reported))
    return simulate(Workload(name="w", jobs=jobs), cluster, scheduler, Timing())


@dataclass
class Scripted:
    """Follows a script: a placement of some jobs at the first round that finds them."""

    script: dict[str, Placement]
    seen: list[float] = field(default_factory=list)

    def decide(self, view: ClusterView) -> Plan:
        self.seen.append(view.now)
        return Plan({name: self.script.pop(name) for name in list(self.script) if name in view.jobs})

    def progressed(self, active: ActiveJob, seconds: float, part: float) -> None: ...

    def ended(self, active: ActiveJob) -> None: ...


def test_a_single_job_takes_its_start_and_its_run_time() -> None:
    [only] = run([job("a", at=100, run_time=600)]).jobs

    assert only.queueing_time == 0
    assert only.completion_time == pytest.approx(30 + 600)


def test_a_job_that_needs_all_devices_waits_for_the_one_before_it() -> None:
    first, second = run([job("a", size=8), job("b", at=1, size=8)]).jobs

    assert second.started_at == first.ended_at
    assert second.completion_time == pytest.approx(2 * 630 - 1)


def test_a_resize_pauses_the_job_and_counts() -> None:
    grows = replace(job("a", size=4, run_time=1000), maximum=8)
    result = simulate(Workload(name="w", jobs=[grows, job("b", at=530, size=1)]), TWO_NODES, _Growing(), Timing())

    grown = next(one for one in result.jobs if one.name == "a")
    left = 0.5 * 1000 * (0.1 + 0.9 / 8) / (0.1 + 0.9 / 4)
    assert grown.completion_time == pytest.approx(530 + 30 + left)
    assert (grown.resizes, [change.replicas for change in grown.sizes]) == (1, [4, 8, 0])


class _Growing(Scripted):
    def __init__(self) -> None:
        super().__init__({"a": {"node-00000": 4}})

    def decide(self, view: ClusterView) -> Plan:
        if "b" in view.jobs and "a" in view.jobs:
            return Plan({"a": {"node-00000": 4, "node-00001": 4}})
        if "b" in view.jobs and not view.jobs["b"].placement:
            return Plan({"b": {"node-00000": 1}})
        return super().decide(view)


class _Forbidden:
    """What nobody may look at."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"{name} was looked at")


class _ForbiddenKnowledge(Observations):
    def estimate(self, active: ActiveJob) -> WorkEstimate:  # noqa: ARG002 - as of all knowledge
        return cast("WorkEstimate", _Forbidden())


@pytest.mark.parametrize("policy", sorted(BLIND_TO_WORK))
def test_a_policy_that_is_said_to_be_blind_to_work_never_looks_at_it(policy: str) -> None:
    jobs = [with_bounds(job(f"j{index:02}", at=50.0 * index, size=index % 5 + 1), "spec") for index in range(30)]

    def simulated_with(knowledge: Knowledge) -> WorkloadResult:
        scheduler = PolicyScheduler(POLICIES[policy], TWO_NODES, knowledge)
        return simulate(Workload(name="w", jobs=jobs), TWO_NODES, scheduler, Timing())

    forbidden = simulated_with(_ForbiddenKnowledge(is_progress_reported=True))
    assert forbidden == simulated_with(NothingKnown())


def test_a_gang_about_which_nothing_changes_is_the_same_object_in_the_next_snapshot() -> None:
    seen: list[Snapshot] = []

    def recording(snapshot: Snapshot, memory: Memory) -> Sequence[Decision]:
        seen.append(snapshot)
        return POLICIES["fifo"](snapshot, memory)

    jobs = [job("runs", size=8), job("waits", size=8)]
    scheduler = PolicyScheduler(recording, TWO_NODES, NothingKnown())
    simulate(Workload(name="w", jobs=jobs), TWO_NODES, scheduler, Timing())

    assert seen[1].running[0] is seen[2].running[0]
    assert seen[0].waiting[1] is seen[1].waiting[0] is seen[2].waiting[0]


def test_half_a_gang_holds_devices_and_does_nothing() -> None:
    scheduler = Scripted({"whole": {"node-00000": 4}, "half": {"node-00001": 2}})

    with pytest.raises(TarragonError, match="can't end"):
        simulate(Workload(name="w", jobs=[job("whole"), job("half")]), TWO_NODES, scheduler, Timing())


def test_a_scheduler_that_sells_a_device_twice_is_an_error() -> None:
    scheduler = Scripted({"a": {"node-00000": 4}, "b": {"node-00000": 4}})

    with pytest.raises(ValueError, match="node-00000 is oversold by 4"):
        simulate(Workload(name="w", jobs=[job("a"), job("b")]), TWO_NODES, scheduler, Timing())


def test_the_scheduler_is_asked_at_each_event_and_once_in_each_interval() -> None:
    scheduler = Scripted({"a": {"node-00000": 4}})
    simulate(Workload(name="w", jobs=[job("a", at=10, run_time=100)]), TWO_NODES, scheduler, Timing())

    assert scheduler.seen == pytest.approx([10, 70, 130, 140][: len(scheduler.seen)])
    assert scheduler.seen[-1] == pytest.approx(140)


JOBS = st.lists(st.tuples(st.integers(0, 500), st.integers(1, 8), st.integers(60, 2000)), min_size=1, max_size=12).map(
    lambda rows: [job(f"j{index:02}", at, size, length) for index, (at, size, length) in enumerate(rows)]
)


@given(JOBS, st.sampled_from(sorted(POLICIES)), st.sampled_from(BOUNDS_RULES), st.booleans())
def test_every_job_ends_within_its_bounds_and_equal_input_gives_equal_results(
    jobs: Sequence[TrainingJob],
    policy: str,
    rule: str,
    reported: bool,  # noqa: FBT001 - drawn by hypothesis
) -> None:
    bounded = [with_bounds(each, next(one for one in BOUNDS_RULES if one == rule)) for each in jobs]

    result = run(bounded, policy, reported=reported)

    assert [one.name for one in result.jobs] == [
        one.name for one in sorted(bounded, key=lambda each: (each.submitted_at, each.name))
    ]
    limits = {each.name: each for each in bounded}
    for one in result.jobs:
        sizes = {change.replicas for change in one.sizes} - {0}
        assert limits[one.name].minimum <= min(sizes) <= max(sizes) <= limits[one.name].maximum
    assert all(0 <= sample.allocated <= TWO_NODES.devices for sample in result.samples)
    assert result == run(bounded, policy, reported=reported)


def test_speeds_are_interpolated_between_measurements_and_flat_beyond() -> None:
    table = SpeedTable([(1, 2, 1.0), (1, 4, 2.0), (3, 4, 1.0), (2, 8, 4.0)])

    assert table.at(1, 1) == 0.5
    assert table.at(1, 3) == 1.5
    assert table.at(2, 4) == 1.5
    assert table.at(1, 6) == 3.0
    assert table.at(9, 99) == 4.0


def test_quantiles_are_values_that_occur() -> None:
    found = Distribution.of(range(1, 101))

    assert (found.mean, found.median, found.p95, found.p99, found.max) == (50.5, 50, 95, 99, 100)
    assert jains_index([1, 1, 1]) == 1
    assert jains_index([1, 0, 0, 0]) == 0.25


def test_a_summary_counts_what_jobs_held_and_did() -> None:
    summary = summarize(PolicyResult(policy="dragon", workloads=[run([job("a", size=8, run_time=970)])]))

    assert summary.makespan == pytest.approx(1000)
    assert summary.allocated == pytest.approx(1.0)
    assert summary.progress == pytest.approx(970 / (0.1 + 0.9 / 8) / 8000)


def simulated(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(root_command, ["simulate", *args], obj=GlobalOptions(), standalone_mode=False)
    if result.exception is not None:
        return 1, result.stdout, str(result.exception)
    return 0, result.stdout, result.stderr


def test_the_command_prints_the_figures_of_each_policy(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text(f"{OWN}a,0,4,600\nb,0,64,600\n")

    code, text, _ = simulated(str(trace), "--policy", "fifo", "--policy", "backfill", "-o", "json")

    found = json.loads(text)["policies"]
    assert code == 0
    assert list(found) == ["fifo", "backfill"]
    assert found["fifo"]["jct"]["mean"] == pytest.approx((630 + 1260) / 2)
    assert simulated(str(trace))[1].splitlines()[1].startswith("elastic")


def test_a_compressed_trace_is_read(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv.gz"
    trace.write_bytes(gzip.compress(f"{OWN}a,0,4,600\n".encode()))

    [workload] = read_workloads(trace, Selection())

    assert [one.name for one in workload.jobs] == ["a"]


FAULTS: Mapping[str, tuple[str, str]] = {
    "a number that is none": (f"{OWN}a,0,four,600\n", "line 2: replicas 'four' is not a number"),
    "no replica": (f"{OWN}a,0,0,600\n", "replicas '0' is not 1 or more"),
    "endless": (f"{OWN}a,0,1,inf\n", "duration_s 'inf' is not a number"),
    "no time": (f"{OWN}a,0,1,0\n", "duration_s '0' is no time to run"),
    "other columns": ("a,b\n1,2\n", "its columns are a, b"),
    "no job": (OWN, "no job of"),
    "too large": (f"{OWN}a,0,65,600\n", "a needs at least 65 GPUs, and the cluster has 64"),
}


@pytest.mark.parametrize(("text", "message"), FAULTS.values(), ids=FAULTS)
def test_a_trace_that_cannot_be_simulated_is_named_with_the_reason(tmp_path: Path, text: str, message: str) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text(text)

    code, _, error = simulated(str(trace))

    assert code == 1
    assert message in error


def test_a_misspelled_policy_is_answered_with_the_right_name(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text(f"{OWN}a,0,4,600\n")

    assert "did you mean backfill?" in simulated(str(trace), "--policy", "backfil")[2]


class LyingKnowledge(Observations):
    """One job reports that 99 % are done, from the beginning to the end."""

    def observe(self, active: ActiveJob, seconds: float, part: float) -> None:
        super().observe(_exaggerating(active) if active.job.name == "liar" else active, seconds, part)


def _exaggerating(active: ActiveJob) -> ActiveJob:
    return replace(active, remaining=0.01)


class SilentKnowledge(Observations):
    """One job reports nothing."""

    def __init__(self) -> None:
        super().__init__(is_progress_reported=True)
        self._silent = Observations(is_progress_reported=False)

    def observe(self, active: ActiveJob, seconds: float, part: float) -> None:
        if active.job.name == "silent":
            self._silent.observe(active, seconds, part)
        else:
            super().observe(active, seconds, part)

    def estimate(self, active: ActiveJob) -> WorkEstimate:
        return self._silent.estimate(active) if active.job.name == "silent" else super().estimate(active)


LIARS_RIVALS = [
    replace(job(f"j{index:02}", at=200.0 * index, size=4, run_time=900), minimum=1, maximum=8) for index in range(20)
]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_that_reports_99_percent_for_ever_ends_no_earlier_than_if_it_had_reported_nothing(policy: str) -> None:
    long = replace(job("liar", size=4, run_time=6000), minimum=1, maximum=8)
    silent = replace(long, name="silent")

    def end(which: TrainingJob, knowledge: Observations) -> float:
        workload = Workload(name="w", jobs=[which, *LIARS_RIVALS])
        jobs = simulate(workload, TWO_NODES, PolicyScheduler(POLICIES[policy], TWO_NODES, knowledge), Timing()).jobs
        return next(one.ended_at for one in jobs if one.name == which.name)

    # Sizes are chosen at other moments, which alone makes an end differ by some percent either way.
    assert end(long, LyingKnowledge(is_progress_reported=True)) >= 0.9 * end(silent, SilentKnowledge())


def pollux(workload: int, rule: str) -> Sequence[TrainingJob]:
    folder = Path(os.environ["TARRAGON_TRACES"])
    speeds = read_speeds(folder / "pollux_speed.csv.gz", "fixed")
    [found] = read_workloads(folder / "pollux_jobs.csv.gz", Selection(workloads=[workload], speeds=speeds))
    return [with_bounds(each, next(one for one in BOUNDS_RULES if one == rule)) for each in found.jobs]


@needs_traces
@pytest.mark.parametrize(("policy", "mean"), [("fifo", 7394), ("backfill", 4251)])
def test_pollux_first_workload_takes_what_an_independent_simulator_found(policy: str, mean: float) -> None:
    result = run(pollux(1, "rigid"), policy, SimulatedCluster.of_equal(16, 4))

    assert summarize(PolicyResult(policy=policy, workloads=[result])).jct.mean == pytest.approx(mean, rel=0.005)


@needs_traces
def test_the_philly_trace_has_the_jobs_that_the_published_evaluations_take() -> None:
    folder = Path(os.environ["TARRAGON_TRACES"])
    speeds = read_speeds(folder / "pollux_speed.csv.gz", "fixed")

    [found] = read_workloads(folder / "philly_2weeks.csv.gz", Selection(days=7, speeds=speeds, devices_per_node=4))

    assert len(found.jobs) == 12_476


def test_one_gpu_jobs_of_philly_may_grow_to_four(tmp_path: Path) -> None:
    trace, speeds = tmp_path / "philly.csv", tmp_path / "speeds.csv"
    trace.write_text("job,submit_s,gpus,duration_s,vc\n1,0,1,600,a\n2,0,8,600,a\n")
    points = "".join(f"{name},{batch},1,1,1\n" for name, batch in (("cifar10", 2048), ("deepspeech2", 320)))
    speeds.write_text(f"application,batch_size,nodes,gpus,speed\n{points}")

    [found] = read_workloads(trace, Selection(speeds=read_speeds(speeds, "fixed")))

    bounds = [(each.minimum, each.maximum) for each in (with_bounds(each, "spec") for each in found.jobs)]
    assert bounds == [(1, 4), (2, 16)]
    assert [with_bounds(each, "rigid").maximum for each in found.jobs] == [1, 8]


def test_csv_has_a_line_for_each_policy_and_each_bound(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text(f"{OWN}a,0,48,600\nb,0,48,600\n")

    code, text, _ = simulated(str(trace), "--policy", "fifo", "--policy", "kube-scheduler-mixed", "-o", "csv")

    lines = {row["policy"]: row for row in csv.DictReader(text.splitlines())}
    assert code == 0
    assert list(lines)[:3] == ["fifo", "kube-scheduler-mixed", "bound: alone"]
    assert float(lines["fifo"]["jct.mean"]) == pytest.approx((630 + 1260) / 2)
    assert (lines["kube-scheduler-mixed"]["ended"], lines["kube-scheduler-mixed"]["jct.mean"]) == ("0", "")


def test_the_seed_decides_what_is_left_to_chance(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text(OWN + "".join(f"j{index},{index * 40},{1 + index % 3},900\n" for index in range(40)))
    command = str(trace), "--nodes", "4", "--policy", "kube-scheduler-mixed", "-o", "csv"

    first, again, other = (simulated(*command, "--seed", seed)[1] for seed in ("1", "1", "2"))

    assert first == again != other


def test_jobs_that_restart_to_resize_are_resized_less(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text(OWN + "".join(f"j{index},{index * 100},2,900\n" for index in range(20)))

    def resizes(*args: str) -> float:
        text = simulated(str(trace), "--nodes", "4", "--bounds", "spec", "--policy", "dragon", "-o", "json", *args)[1]
        return float(json.loads(text)["policies"]["dragon"]["resizes"])

    assert resizes("--resize", "restart") < resizes()


def test_the_interval_is_how_often_the_policy_is_asked(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text(f"{OWN}a,0,4,3570\n")

    def rounds(*args: str) -> int:
        text = simulated(str(trace), "--policy", "fifo", "-o", "json", *args)[1]
        return int(json.loads(text)["policies"]["fifo"]["rounds"])

    assert (rounds("--interval", "600"), rounds()) == (1 + 5 + 1, 1 + 59 + 1)
    assert "is not 1 s or more" in simulated(str(trace), "--interval", "0")[2]


def test_nodes_of_other_sizes_are_read_from_a_file(tmp_path: Path) -> None:
    trace, nodes = tmp_path / "jobs.csv", tmp_path / "nodes.yaml"
    trace.write_text("name,submit_s,replicas,duration_s,gpus\na,0,2,600,8\n")
    nodes.write_text("[{count: 1, gpus: 16}, {count: 8, gpus: 4}]")

    code, text, _ = simulated(str(trace), "--cluster", str(nodes), "--policy", "fifo", "-o", "json")

    assert (code, json.loads(text)["policies"]["fifo"]["jct"]["mean"]) == (0, pytest.approx(630))
    assert "each replica of a needs 8 GPUs, and no node has more than 4" in simulated(str(trace))[2]
    assert "use one of them" in simulated(str(trace), "--cluster", str(nodes), "--nodes-from-cluster")[2]


class _Screen(io.StringIO):
    def frames(self) -> Sequence[str]:
        return [frame.rpartition("[J")[2] for frame in self.getvalue().split("jobs")[:-1]]


def test_the_bar_fills_up_as_jobs_end_and_is_gone_at_the_end() -> None:
    screen = _Screen()
    bar = Bar("fifo", 300, screen)
    for _ in range(300):
        bar.advance()
    shown = screen.frames()
    bar.clear()

    assert len(shown) <= STEPS + 1
    assert (shown[0].split()[-1], shown[-1].split()[-1]) == ("0/300", "300/300")
    assert screen.getvalue().endswith("[J")
