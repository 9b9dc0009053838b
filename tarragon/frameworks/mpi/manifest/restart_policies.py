"""How launchers and workers restart and start in each generation.

The original operators left restarts to a batch Job and to a StatefulSet, or made none. Here the operator restarts all
replicas but those with restartPolicy Always itself, because it must see each end: an mpirun that ends because it lost
a worker has not failed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from enum import Enum

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.mpi.fields import LAUNCHER
from tarragon.frameworks.mpi.options import LauncherCreation
from tarragon.job.model import ElasticPolicy, ReplicaSpec, RestartPolicy


class LauncherEngine(Enum):
    """What restarted the launcher in the original operator."""

    BATCH_JOB = "batch Job"
    """A failed launcher is started again until its failures exceed backoffLimit, whatever its restartPolicy."""
    POD = "pod"
    """A failed launcher is started again if its restartPolicy says so."""


def with_restart_policies(
    groups: Iterable[ReplicaSpec], engine: LauncherEngine, creation: LauncherCreation, elastic: ElasticPolicy | None
) -> tuple[ReplicaSpec, ...]:
    """The replica specs with the restart policies that the operator follows, and the order of the start."""
    given = {group.type: group for group in groups}
    launcher, workers = given.get(LAUNCHER), given.get(WORKER)
    launcher_retries = launcher is not None and _launcher_policy(launcher, engine) is not RestartPolicy.NEVER
    retries = launcher_retries or elastic is not None
    return tuple(
        _launcher(group, engine, creation, workers) if group.type == LAUNCHER else _worker(group, retries=retries)
        for group in given.values()
    )


def _launcher(
    group: ReplicaSpec, engine: LauncherEngine, creation: LauncherCreation, workers: ReplicaSpec | None
) -> ReplicaSpec:
    policy = _launcher_policy(group, engine)
    waits = creation is LauncherCreation.WAIT_FOR_WORKERS_READY and workers is not None and workers.replicas > 0
    return replace(
        group,
        restart_policy=policy,
        pod_restart_policy_override="" if policy is RestartPolicy.ALWAYS else RestartPolicy.NEVER.value,
        starts_after=WORKER if waits else None,
    )


def _launcher_policy(group: ReplicaSpec, engine: LauncherEngine) -> RestartPolicy:
    return RestartPolicy.ON_FAILURE if engine is LauncherEngine.BATCH_JOB else group.restart_policy


def _worker(group: ReplicaSpec, *, retries: bool) -> ReplicaSpec:
    """A failed worker is replaced where the launcher may start again, which is of no use without the worker.

    So it is in an elastic job, whose launcher goes on.
    """
    if group.restart_policy is not RestartPolicy.NEVER or not retries:
        return group
    return replace(
        group, restart_policy=RestartPolicy.ON_FAILURE, pod_restart_policy_override=RestartPolicy.NEVER.value
    )
