"""When a gang that waits will probably start."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from bench.support.replay import PHILLY, ForecastResult, Replay, coverage, philly, synthetic
from tarragon.base.resources import NVIDIA_GPU
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.job.model import Replica
from tarragon.scheduling.api.decision import Decision, Defer
from tarragon.scheduling.api.snapshot import Demand, NodeState, RunningGang, Snapshot, WaitingGang
from tarragon.scheduling.explain.forecast import MAX_AHEAD, Forecast, NoForecast, RunTimeModel, forecast
from tarragon.scheduling.explain.runtime_estimates import RunTime, RunTimeEstimates
from tarragon.scheduling.policies.fifo import fifo
from tarragon.scheduling.state.memory import Memory

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
TOLERANCE = 0.08
"""Of what is told of hundreds of jobs, four of five starts lie in the band, give or take this."""


def at(seconds: float) -> dt.datetime:
    return NOON + dt.timedelta(seconds=seconds)


def ended(*seconds: float) -> RunTimeModel:
    return RunTimeModel(estimates=RunTimeEstimates([RunTime(seconds=each, is_finished=True) for each in seconds]))


def workers(number: int) -> Sequence[Demand]:
    kind, nodes = WORKER, frozenset({"a"})
    return [Demand(type=kind, resources={NVIDIA_GPU: 1000}, minimum=number, requested=number, eligible_nodes=nodes)]


def runs(name: str, gpus: int, *, since: float) -> RunningGang:
    nodes = {Replica(WORKER, index): "a" for index in range(gpus)}
    return RunningGang(name=name, demands=workers(gpus), nodes=nodes, is_elastic=False, admitted_at=at(-since))


def waits(name: str, gpus: int, *, since: float = 1) -> WaitingGang:
    return WaitingGang(name=name, queued_at=at(-since), demands=workers(gpus))


def picture(gpus: int, running: Sequence[RunningGang], waiting: Sequence[WaitingGang]) -> Snapshot:
    held = sum(len(gang.nodes) for gang in running)
    node = NodeState(name="a", capacity={NVIDIA_GPU: 1000 * gpus}, free={NVIDIA_GPU: 1000 * (gpus - held)})
    return Snapshot(now=NOON, nodes=[node], waiting=waiting, running=running)


def test_where_all_jobs_last_equally_long_the_start_is_known_to_the_second() -> None:
    seen = picture(2, [runs("first", 2, since=40)], [waits("mine", 2)])

    prediction = forecast("mine", seen, ended(*[100.0] * 40), fifo)

    assert prediction == Forecast(earliest=at(60), likely=at(60), latest=at(60), sample_size=40)


def test_who_comes_first_is_waited_for_too() -> None:
    seen = picture(2, [runs("first", 2, since=40)], [waits("second", 2, since=9), waits("mine", 1)])

    prediction = forecast("mine", seen, ended(*[100.0] * 80), fifo)

    assert isinstance(prediction, Forecast)
    assert prediction.likely == at(160)


def test_nothing_is_told_where_nothing_has_ended_yet() -> None:
    seen = picture(2, [runs("first", 2, since=40)], [waits("mine", 2)])

    assert forecast("mine", seen, ended(), fifo) == NoForecast(
        "there is no finished job (deleted ones do not count), so run times cannot be estimated"
    )
    assert forecast("mine", seen, ended(5), fifo) == NoForecast(
        "there is only 1 finished job (deleted ones do not count), too few to estimate run times"
    )


def test_nothing_is_told_of_a_wait_for_one_that_has_run_longer_than_any_before() -> None:
    seen = picture(2, [runs("first", 2, since=1000)], [waits("mine", 2)])

    prediction = forecast("mine", seen, ended(*range(1, 30)), fifo)

    assert prediction == NoForecast("it waits for jobs that have run longer than any finished job")


def test_no_end_of_the_band_is_told_where_more_than_one_in_ten_outlive_all_that_are_known() -> None:
    seen = picture(2, [runs("first", 2, since=100)], [waits("mine", 2)])

    prediction = forecast("mine", seen, ended(*range(10, 90, 10), 110, 120, 130, 140, 150), fifo)

    assert isinstance(prediction, Forecast)
    assert (prediction.earliest, prediction.latest) == (at(10), None)


def test_the_same_picture_gives_the_same_answer() -> None:
    lengths = ended(*np.geomspace(10, 10_000, 50))
    seen = picture(4, [runs("a", 2, since=5), runs("b", 2, since=50)], [waits("c", 3, since=9), waits("mine", 2)])

    assert forecast("mine", seen, lengths, fifo) == forecast("mine", seen, lengths, fifo)


def test_jobs_that_are_alike_tell_more_than_all_others() -> None:
    lives = [RunTime(seconds=1000, is_finished=True, kinds=["long"])] * 20 + [
        RunTime(seconds=10, is_finished=True, kinds=["short"])
    ] * 60
    kinds = {"first": ["nobody is like this", "long"], "mine": ["short"]}
    seen = picture(2, [runs("first", 2, since=0)], [waits("mine", 2)])

    prediction = forecast("mine", seen, RunTimeModel(estimates=RunTimeEstimates(lives), kinds_by_gang=kinds), fifo)

    assert isinstance(prediction, Forecast)
    assert prediction.likely == at(1000)


def test_those_that_still_run_say_that_gangs_last_at_least_so_long() -> None:
    over = [RunTime(seconds=each, is_finished=True) for each in range(1, 21)]
    shares = np.array([0.4])
    alone = RunTimeEstimates(over).remaining((), 0, shares)
    beside = RunTimeEstimates([*over, *[RunTime(seconds=15.5, is_finished=False)] * 20]).remaining((), 0, shares)

    assert alone[0] == 9
    assert beside[0] > 14


def test_of_a_queue_that_is_too_long_nothing_is_told_and_little_is_done() -> None:
    ahead = [waits(f"job-{number:05}", 2, since=9) for number in range(10_000)]
    seen = picture(2, [runs("first", 2, since=5)], [*ahead, waits("mine", 2)])

    prediction = forecast("mine", seen, ended(*range(1, 100)), fifo)

    assert prediction == NoForecast("10000 jobs are ahead of it, too many to simulate the queue")


def test_work_is_bounded_whatever_a_policy_does() -> None:
    rounds: list[int] = []

    def counted(snapshot: Snapshot, _: Memory) -> Sequence[Decision]:
        rounds.append(len(snapshot.waiting))
        return [Defer(gang.name, "x", "") for gang in snapshot.waiting]

    ahead = [waits(f"job-{number:03}", 1, since=9) for number in range(MAX_AHEAD - 1)]
    running = [runs(f"run-{number:03}", 1, since=number) for number in range(300)]
    prediction = forecast(
        "mine", picture(300, running, [*ahead, waits("mine", 300)]), ended(*range(1, 5000, 10)), counted
    )

    assert isinstance(prediction, NoForecast)
    assert len(rounds) < 4000
    assert max(rounds) < 20


def test_four_of_five_jobs_start_within_the_band_that_was_told() -> None:
    asked = Replay(nodes=4, every=15).of(synthetic(600, 1, 170))

    assert len(asked) > 50
    assert abs(coverage(asked) - 0.8) < TOLERANCE
    assert [each.at for each in asked] == sorted(each.at for each in asked)


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("TARRAGON_TRACES"), reason="TARRAGON_TRACES names no folder with traces")
def test_so_it_is_with_jobs_that_people_have_run() -> None:
    folder = Path(os.environ["TARRAGON_TRACES"])
    asked: list[ForecastResult] = []
    for cluster, (nodes, every, most) in PHILLY.items():
        asked += Replay(nodes=nodes, every=every).of(philly(folder, cluster, most))

    assert abs(coverage(asked) - 0.8) < TOLERANCE
