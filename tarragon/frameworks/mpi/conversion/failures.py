"""What failures mean for an MPIJob: how many of them end it, and the fate of a replica that failed."""

from __future__ import annotations

from collections.abc import Mapping

from tarragon.frameworks.kubeflow.conversion.failure_semantics import FINAL, failure_semantics
from tarragon.frameworks.mpi.conversion.generations import GENERATIONS
from tarragon.frameworks.mpi.manifest.restart_policies import LauncherEngine
from tarragon.job.model import ReplicaType, TrainingJob


def fatal_failure(job: TrainingJob) -> int | None:
    """The number of the failure that exceeds the backoffLimit: batch Jobs count failures, all others restarts."""
    limit = job.run_policy.backoff_limit
    if limit is None:
        return None
    return limit + 1 if GENERATIONS[job.dialect].engine is LauncherEngine.BATCH_JOB else max(limit, 1)


def failure_fates(job: TrainingJob) -> Mapping[ReplicaType, str]:
    """The fate of each type that has replicas."""
    is_final = fatal_failure(job) == 1
    return {
        group.type: FINAL if is_final else failure_semantics(job, group)[0]
        for group in job.replica_specs
        if group.replicas
    }


def all_failures_are_final(job: TrainingJob) -> bool:
    return set(failure_fates(job).values()) <= {FINAL}
