"""Jobs that lie about their progress among honest ones, by the operator's own estimates and its policy `elastic`."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from statistics import mean

import pytest

from tarragon.scheduling.api.work import SpeedupPrior, WorkEstimate
from tarragon.scheduling.estimates.estimate import estimate_work, with_claim
from tarragon.scheduling.estimates.kind_history import KindHistory
from tarragon.scheduling.estimates.work_record import WorkRecord
from tarragon.scheduling.policies import POLICIES
from tarragon.simulator.engine import ActiveJob, SimulatedCluster, Timing, simulate
from tarragon.simulator.policy_scheduler import Observations, PolicyScheduler
from tarragon.simulator.results import JobResult
from tarragon.simulator.speedups import AmdahlSpeed, with_run_time
from tarragon.simulator.workload import TrainingJob, Workload

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("false reports")]  # which share what honest jobs do

CLUSTER = SimulatedCluster.of_equal(4, 4)
SEEDS = range(3)
LIAR, HONEST = "liar", "honest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A report: what is done, what there is in all, and the units of work since the last one."""

    done: float
    total: float
    units: float
    restart_seconds: float | None = None
    """How long it took from the last start to the first report."""


@dataclass(slots=True)
class Life:
    """What a job has lived through until a report."""

    seconds: float = 0.0
    """In which it worked."""
    done: float = 0.0
    """The part of its work that is really done."""
    claimed: float = 0.0
    """The units that it has claimed in all."""
    reports: int = 0


Lie = Callable[[Life, float, int, float], Said]
"""By the life until now: the seconds and the size since the last report, and the part that was really done in them."""


def honestly(life: Life, _: float, __: int, part: float) -> Said:
    return Said(done=life.done, total=1.0, units=part)


def nearly_done_for_ever(_: Life, __: float, ___: int, part: float) -> Said:
    return Said(done=0.99, total=1.0, units=part)


def a_tenth_of_the_rest(life: Life, _: float, __: int, part: float) -> Said:
    return Said(done=life.done, total=life.done + (1 - life.done) / 10, units=part)


def a_total_that_alternates(life: Life, _: float, __: int, part: float) -> Said:
    return Said(done=life.done, total=life.done + 1e-4 if life.reports % 2 else 100.0, units=part)


def little_at_first(life: Life, _: float, __: int, part: float) -> Said:
    return Said(done=life.done, total=life.done + 1e-3 if life.seconds < 600 else 1.0, units=part)


def half_of_the_rest(life: Life, _: float, __: int, part: float) -> Said:
    return Said(done=life.done, total=life.done + (1 - life.done) / 2, units=part)


def as_fast_as_large(life: Life, seconds: float, size: int, _: float) -> Said:
    """Claim that twice the devices do twice the work, and a total with which the rest is never too small."""
    units = seconds * size
    return Said(done=life.claimed + units, total=(life.claimed + units) / max(life.done, 1e-6), units=units)


def half_an_hour_to_restart(life: Life, _: float, __: int, part: float) -> Said:
    """Report the truth, but after each start only after half an hour: what such a job has costs it much to lose."""
    return Said(done=life.done, total=1.0, units=part, restart_seconds=1800.0)


BROKEN_PROMISES: Mapping[str, Lie] = {
    "99 % for ever": nearly_done_for_ever,
    "a tenth of the rest": a_tenth_of_the_rest,
    "a total that alternates": a_total_that_alternates,
    "little at first": little_at_first,
}
KEPT_PROMISES: Mapping[str, Lie] = {
    "half of the rest": half_of_the_rest,
    "as fast as large": as_fast_as_large,
    "half an hour to restart": half_an_hour_to_restart,
}


@dataclass(slots=True)
class FalseReports:
    """What the operator knows of the jobs: half of them lie, or report nothing; the others are honest."""

    lie: Lie | None
    honest: Observations = field(default_factory=lambda: Observations(is_progress_reported=True))
    silent: Observations = field(default_factory=lambda: Observations(is_progress_reported=False))
    lives: dict[str, Life] = field(default_factory=dict)
    records: dict[str, WorkRecord] = field(default_factory=dict)

    def observe(self, active: ActiveJob, seconds: float, part: float) -> None:
        if not self._is_liar(active):
            self.honest.observe(active, seconds, part)
        elif self.lie is None:
            self.silent.observe(active, seconds, part)
        else:
            self._observe_lie(active, seconds, part, self.lie)

    def finish(self, active: ActiveJob) -> None:
        if not self._is_liar(active):
            self.honest.finish(active)

    def estimate(self, active: ActiveJob) -> WorkEstimate:
        if not self._is_liar(active):
            return self.honest.estimate(active)
        if self.lie is None:
            return self.silent.estimate(active)
        return estimate_work(self.records.get(active.job.name, WorkRecord()), KindHistory(), _prior(active))

    def _observe_lie(self, active: ActiveJob, seconds: float, part: float, lie: Lie) -> None:
        life = self.lives.setdefault(active.job.name, Life())
        life.seconds, life.done, life.reports = life.seconds + seconds, 1 - active.remaining, life.reports + 1
        said = lie(life, seconds, active.size, part)
        life.claimed += said.units
        record = self.records.get(active.job.name, WorkRecord())
        sizes = record.sizes_with(active.size, seconds, said.units)
        seen = replace(record, sizes=sizes, done=said.done, total=said.total, restart_seconds=said.restart_seconds)
        self.records[active.job.name] = with_claim(seen, _prior(active))

    def _is_liar(self, active: ActiveJob) -> bool:
        return active.job.name.startswith(LIAR)


def _prior(active: ActiveJob) -> SpeedupPrior:
    return SpeedupPrior(active.job.requested, float(active.job.devices))


def jobs(seed: int) -> Sequence[TrainingJob]:
    """Elastic jobs of very different lengths, which come faster than they end. No two are of one kind."""
    drawn, at, found = random.Random(seed), 0.0, []
    for index in range(60):
        at += drawn.expovariate(1 / 230)
        size = drawn.choice([1, 1, 2, 2, 4, 8])
        run_time = min(20_000.0, max(120.0, drawn.lognormvariate(6.8, 1.1)))
        speed = with_run_time(AmdahlSpeed(drawn.uniform(0.85, 0.99)), run_time, (-(-size // 4), size))
        name = f"{LIAR if index % 2 else HONEST}-{index:02}"
        found.append(
            TrainingJob(
                name=name,
                kind=name,
                submitted_at=at,
                requested=size,
                minimum=1,
                maximum=min(16, 4 * size),
                speed=speed,
            )
        )
    return found


@dataclass(frozen=True, slots=True)
class Outcome:
    """The mean job completion time of the liars, and the device-seconds that they held."""

    completion_time: float
    held: float


@cache
def outcome(lie: Lie | None) -> Outcome:
    liars: list[JobResult] = []
    for seed in SEEDS:
        scheduler = PolicyScheduler(POLICIES["elastic"], CLUSTER, FalseReports(lie))
        results = simulate(Workload(name="w", jobs=jobs(seed)), CLUSTER, scheduler, Timing()).jobs
        liars += [result for result in results if result.name.startswith(LIAR)]
    return Outcome(mean(each.completion_time for each in liars), sum(map(_held, liars)))


def _held(job: JobResult) -> float:
    ends = [*(change.at for change in job.sizes[1:]), job.ended_at]
    return sum(change.replicas * job.devices * (end - change.at) for change, end in zip(job.sizes, ends, strict=True))


@pytest.mark.parametrize("name", BROKEN_PROMISES)
def test_jobs_that_break_their_promises_do_no_better_than_if_they_had_reported_nothing(name: str) -> None:
    lying, silent = outcome(BROKEN_PROMISES[name]), outcome(None)

    # Sizes are chosen at other moments, which alone makes means differ by some percent either way.
    assert lying.completion_time >= 0.97 * silent.completion_time
    assert lying.held <= 1.05 * silent.held


@pytest.mark.parametrize("name", KEPT_PROMISES)
def test_what_cannot_be_recognised_buys_little_over_honest_reports(name: str) -> None:
    lying, honest = outcome(KEPT_PROMISES[name]), outcome(honestly)

    assert lying.completion_time >= 0.9 * honest.completion_time
    assert lying.held <= 1.1 * honest.held


def test_honest_reports_pay() -> None:
    assert outcome(honestly).completion_time < outcome(None).completion_time
