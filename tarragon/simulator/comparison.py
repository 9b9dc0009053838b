"""Runs several schedulers over the same workloads: policies of the operator and baselines, by their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tarragon.scheduling.policies import BLIND_TO_WORK, POLICIES
from tarragon.simulator.baselines.registry import BASELINES
from tarragon.simulator.engine import DeadlockError, Scheduler, SimulatedCluster, Timing, simulate
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

    def run(self, name: str) -> PolicyResult:
        """Run the scheduler of this name. Raises DeadlockError where a policy of the operator has one: that is a bug,
        or a job that can't run on these nodes. A baseline may have one.
        """
        results = [self._simulated(name, workload) for workload in self.workloads]
        return PolicyResult(policy=name, workloads=results)

    def _simulated(self, name: str, workload: Workload) -> WorkloadResult:
        if name in POLICIES:
            return simulate(workload, self.cluster, self._policy_scheduler(name), self.timing)
        baseline = BASELINES[name]
        try:
            return simulate(
                workload if baseline.is_elastic else _rigid(workload),
                self.cluster,
                baseline.scheduler(self.timing),
                self.timing,
            )
        except DeadlockError as error:
            return error.result

    def _policy_scheduler(self, name: str) -> Scheduler:
        is_blind = name in BLIND_TO_WORK
        knowledge = NothingKnown() if is_blind else Observations(is_progress_reported=self.is_progress_reported)
        return PolicyScheduler(POLICIES[name], self.cluster, knowledge)


def _rigid(workload: Workload) -> Workload:
    return replace(workload, jobs=[with_bounds(job, "rigid") for job in workload.jobs])
