"""What becomes of a queue: when each gang starts, what size it has, and when it ends."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace

from tarragon.base.resources import NVIDIA_GPU
from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.job.model import Replica
from tarragon.scheduling.api.decision import NEVER_FITS
from tarragon.scheduling.api.snapshot import Demand, NodeState, RunningGang, Snapshot, WaitingGang
from tarragon.scheduling.api.work import SpeedupCurve, SpeedupPrior, WorkEstimate
from tarragon.scheduling.explain.forecast import RunTimeModel
from tarragon.scheduling.explain.runtime_estimates import RunTime, RunTimeEstimates
from tarragon.scheduling.policies.dragon import dragon
from tarragon.scheduling.policies.fifo import fifo
from tarragon.scheduling.state.memory import Policy
from tarragon.simulator.what_if.changed_starts import Changed, changed_starts, is_affected, summary_of
from tarragon.simulator.what_if.expected_runs import Basis, expected_runs
from tarragon.simulator.what_if.queue_course import QueueCourse, SizeChange, queue_course

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


def ago(seconds: float) -> dt.datetime:
    return NOON - dt.timedelta(seconds=seconds)


def workers(number: int, *, minimum: int | None = None, maximum: int = 0, nodes: str = "ab") -> Sequence[Demand]:
    least = number if minimum is None else minimum
    each = {NVIDIA_GPU: 1000}
    return [
        Demand(
            type=WORKER,
            resources=each,
            minimum=least,
            requested=number,
            maximum=maximum,
            eligible_nodes=frozenset(nodes),
        )
    ]


def work(seconds: float, replicas: int) -> WorkEstimate:
    """What lasts so many seconds with so many replicas, and twice as many would do in half the time."""
    rates = tuple((size, float(size)) for size in (1, 2, 4, 8))
    curve = SpeedupCurve(SpeedupPrior(replicas), rates)
    return WorkEstimate(remaining=seconds * curve.at(replicas), curve=curve, restart_seconds=0.0)


def runs(name: str, on: str, since: float = 0.0, rest: WorkEstimate | None = None) -> RunningGang:
    """A rigid gang with a replica on the node of each letter."""
    return RunningGang(
        name=name,
        demands=workers(len(on)),
        nodes={Replica(WORKER, index): node for index, node in enumerate(on)},
        is_elastic=False,
        admitted_at=ago(since),
        work=rest,
    )


def waits(name: str, gpus: int, *, since: float = 1, rest: WorkEstimate | None = None) -> WaitingGang:
    return WaitingGang(name=name, queued_at=ago(since), demands=workers(gpus), work=rest)


def picture(gpus: int, running: Sequence[RunningGang] = (), waiting: Sequence[WaitingGang] = ()) -> Snapshot:
    """Two nodes, a and b, with so many GPUs each."""
    nodes = []
    for name in "ab":
        held = sum(node == name for gang in running for node in gang.nodes.values())
        nodes.append(NodeState(name=name, capacity={NVIDIA_GPU: 1000 * gpus}, free={NVIDIA_GPU: 1000 * (gpus - held)}))
    return Snapshot(now=NOON, nodes=nodes, waiting=waiting, running=running)


def ended(*seconds: float) -> RunTimeModel:
    return RunTimeModel(estimates=RunTimeEstimates([RunTime(seconds=each, is_finished=True) for each in seconds]))


def course(
    snapshot: Snapshot, outlook: RunTimeModel | None = None, policy: Policy = fifo, assumed: float | None = None
) -> QueueCourse:
    return queue_course(snapshot, expected_runs(snapshot, outlook or ended(), assumed), policy)


def test_a_gang_starts_when_the_one_before_it_ends_and_ends_after_its_own_work() -> None:
    seen = picture(1, [runs("first", "ab", rest=work(100, 2))], [waits("second", 2, rest=work(50, 2))])

    second = course(seen).gangs["second"]

    assert (second.starts_in, second.ends_in, second.basis) == (100, 150, Basis.WORK)
    assert not second.is_rough


def test_a_gang_without_reports_lasts_as_long_as_most_finished_ones() -> None:
    seen = picture(1, [runs("first", "ab", since=40)], [waits("second", 2)])

    second = course(seen, ended(*[100.0] * 9)).gangs["second"]

    assert (second.starts_in, second.ends_in, second.basis) == (60, 160, Basis.SIMILAR_JOBS)


def test_without_any_finished_gang_a_running_one_runs_on_for_as_long_as_it_has_run_and_that_is_said() -> None:
    seen = picture(1, [runs("first", "ab", since=4000)], [waits("second", 2)])

    found = course(seen).gangs

    assert (found["first"].ends_in, found["first"].basis) == (4000, Basis.ASSUMED)
    assert (found["second"].starts_in, found["second"].is_rough) == (4000, True)


def test_the_assumed_run_time_may_be_given() -> None:
    seen = picture(1, [runs("first", "ab", since=1000)], [waits("second", 2)])

    second = course(seen, assumed=7200).gangs["second"]

    assert (second.starts_in, second.ends_in) == (6200, 13400)


def test_an_elastic_gang_that_grows_ends_earlier() -> None:
    rest = work(1000, 2)
    small = replace(
        runs("elastic", "aa", since=300, rest=rest), demands=workers(2, minimum=1, maximum=8), is_elastic=True
    )

    grown = course(picture(4, [small]), policy=dragon).gangs["elastic"]

    assert grown.sizes[0] == SizeChange(0, 2)
    assert grown.sizes[-1].replicas == 8
    assert grown.ends_in is not None
    assert grown.ends_in < 500


def test_a_gang_that_lost_a_node_makes_no_progress_until_it_is_placed_again() -> None:
    lost = replace(runs("lost", "az", rest=work(100, 2)), displaced=frozenset({Replica(WORKER, 1)}))
    seen = picture(1, [lost, runs("other", "b", rest=work(50, 1))])

    found = course(seen).gangs["lost"]

    assert found.displaced == 1
    assert found.sizes == (SizeChange(0, 1), SizeChange(50, 2))
    assert found.ends_in == 150


def test_a_gang_that_never_fits_does_not_start_and_says_why() -> None:
    seen = picture(1, [runs("first", "a", rest=work(100, 1))], [waits("large", 9)])

    found = course(seen)

    large = found.gangs["large"]
    assert (large.starts_in, large.ends_in, found.cut_at) == (None, None, None)
    assert large.wait is not None
    assert large.wait.code == NEVER_FITS
    assert summary_of(found, found.gangs).never == 1


def test_a_gang_that_never_gets_its_lost_node_back_does_not_keep_the_simulation_going() -> None:
    lost = replace(runs("lost", "az", rest=work(100, 2)), displaced=frozenset({Replica(WORKER, 1)}))
    nodes = [NodeState(name="a", capacity={NVIDIA_GPU: 1000}, free={NVIDIA_GPU: 0})]

    found = course(replace(picture(1), nodes=nodes, running=[lost]), policy=dragon)

    assert (found.gangs["lost"].ends_in, found.cut_at) == (None, None)


def test_a_queue_that_takes_too_long_is_cut_and_says_where() -> None:
    queue = [waits(f"job-{number:04}", 2, since=5000 - number, rest=work(100, 2)) for number in range(1000)]
    seen = picture(1, waiting=queue)

    found = queue_course(seen, expected_runs(seen, ended()), fifo, most_work=300_000)

    assert found.cut_at is not None
    assert found.gangs["job-0000"].starts_in == 0
    assert found.gangs["job-0999"].starts_in is None
    assert summary_of(found, found.gangs).never == 0


def test_the_same_snapshot_gives_the_same_course() -> None:
    seen = picture(2, [runs("first", "aab", since=9)], [waits("a", 3, since=5), waits("b", 1), waits("c", 4)])

    assert course(seen, ended(*range(50, 90)), dragon) == course(seen, ended(*range(50, 90)), dragon)


def test_what_changes_is_told_by_gang_and_only_if_it_can_be_noticed() -> None:
    first = runs("first", "ab", rest=work(1000, 2))
    queue = [waits("second", 2, since=9, rest=work(100, 2)), waits("third", 2, rest=work(100, 2))]
    before = course(picture(1, [first], queue))

    after = course(picture(2, [first], queue))

    assert list(changed_starts(before.gangs, after.gangs)) == [Changed("second", -1000), Changed("third", -1000)]
    assert list(changed_starts(before.gangs, before.gangs)) == []
    assert not is_affected(before.gangs["first"], after.gangs["first"])
    summary = summary_of(after, before.gangs)
    assert (summary.waiting, summary.started, summary.soon) == (2, 2, 2)
    assert summary.mean_wait == 50
