"""Runs several schedulers over the same workloads: policies of the operator and baselines, by their names."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tarragon.scheduling.policies import BLIND_TO_WORK, POLICIES
from tarragon.simulator.baselines.registry import BASELINES
from tarragon.simulator.engine import (
    ActiveJob,
    ClusterView,
    DeadlockError,
    Plan,
    Scheduler,
    SimulatedCluster,
    Timing,
    simulate,
)
from tarragon.simulator.policy_scheduler import NothingKnown, Observations, PolicyScheduler
from tarragon.simulator.results import PolicyResult, WorkloadResult
from tarragon.simulator.workload import Workload, with_bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What is equal for all schedulers."""

    workloads: Sequence[Workload]
    cluster: SimulatedCluster
    timing: Timing
    is_progress_reported: bool
    resizes_by_restart: bool = False
    seed: int = 1
    """Of the baselines that decide by chance."""

    def run(self, name: str, job_ended: Callable[[], None] = lambda: None) -> PolicyResult:
        """Run the scheduler of this name. Raises DeadlockError where a policy of the operator has one: that is a bug,
        or a job that can't run on these nodes. A baseline may have one.
        """
        results = [self._simulated(name, workload, job_ended) for workload in self.workloads]
        return PolicyResult(policy=name, workloads=results)

    def _simulated(self, name: str, workload: Workload, job_ended: Callable[[], None]) -> WorkloadResult:
        if name in POLICIES:
            counting = _Counting(self._policy_scheduler(name), job_ended)
            return simulate(workload, self.cluster, counting, self.timing)
        baseline = BASELINES[name]
        counting = _Counting(baseline.scheduler(self.timing, random.Random(self.seed)), job_ended)
        try:
            return simulate(workload if baseline.is_elastic else _rigid(workload), self.cluster, counting, self.timing)
        except DeadlockError as error:
            return error.result

    def _policy_scheduler(self, name: str) -> Scheduler:
        is_blind = name in BLIND_TO_WORK
        knowledge = NothingKnown() if is_blind else Observations(is_progress_reported=self.is_progress_reported)
        return PolicyScheduler(POLICIES[name], self.cluster, knowledge, resizes_by_restart=self.resizes_by_restart)


@dataclass(frozen=True, slots=True)
class _Counting:
    """A scheduler that also tells about each job that ends."""

    scheduler: Scheduler
    job_ended: Callable[[], None]

    def decide(self, view: ClusterView) -> Plan:
        return self.scheduler.decide(view)

    def progressed(self, active: ActiveJob, seconds: float, part: float) -> None:
        self.scheduler.progressed(active, seconds, part)

    def ended(self, active: ActiveJob) -> None:
        self.scheduler.ended(active)
        self.job_ended()


def _rigid(workload: Workload) -> Workload:
    return replace(workload, jobs=[with_bounds(job, "rigid") for job in workload.jobs])
