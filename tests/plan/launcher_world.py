"""A small world with a job that has a launcher: a TFJob whose chief starts after the workers, and can't lose any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.mpi.worker_loss import review_worker_loss
from tarragon.frameworks.plugin import BackoffCount, DecodedManifest, Dialect, Framework, Manifest
from tarragon.frameworks.tensorflow.framework import TENSORFLOW
from tarragon.frameworks.tensorflow.replica_types import CHIEF
from tarragon.job.model import ReplicaSpec, ReplicaType, RestartPolicy, TrainingJob
from tarragon.plan.view.actions import Create
from tests.plan.world import World, is_idle, manifest

LAUNCHER, WORKER_0, WORKER_1 = "dist-chief-0", "dist-worker-0", "dist-worker-1"


def launcher_job(
    workers: int = 2, *, launcher: Any = "OnFailure", worker: Any = "Never", **spec: Any
) -> dict[str, Any]:
    body = manifest({"Chief": 1, "Worker": workers}, policy=worker, **spec)
    body["spec"]["tfReplicaSpecs"]["Chief"]["restartPolicy"] = launcher
    return body


def launcher_framework(starts_after: ReplicaType | None) -> Framework:
    def as_launcher(dialect: Dialect) -> Dialect:
        def decode(found: Manifest) -> DecodedManifest:
            decoded = dialect.decode(found)
            job = decoded.job
            if job is None:
                return decoded
            specs = tuple(
                _launcher(group, starts_after) if group.type == CHIEF else _worker(group, job)
                for group in job.replica_specs
            )
            return replace(decoded, job=replace(job, replica_specs=specs))

        return replace(dialect, decode=decode, backoff_count=BackoffCount.BATCH_JOB)

    return replace(
        TENSORFLOW,
        dialects=tuple(as_launcher(dialect) for dialect in TENSORFLOW.dialects),
        start_order=(WORKER, CHIEF),
        review_states=review_worker_loss,
    )


def _launcher(group: ReplicaSpec, starts_after: ReplicaType | None) -> ReplicaSpec:
    return replace(
        group,
        role=replace(group.role, restarts_after=WORKER),
        starts_after=starts_after,
        pod_restart_policy_override=RestartPolicy.NEVER.value,
    )


def _worker(group: ReplicaSpec, job: TrainingJob) -> ReplicaSpec:
    """A worker that fails is replaced if the launcher may start again."""
    launcher = job.replica_spec(CHIEF)
    gives_up = launcher is None or launcher.restart_policy is RestartPolicy.NEVER
    if group.restart_policy is not RestartPolicy.NEVER or gives_up:
        return group
    return replace(group, restart_policy=RestartPolicy.ON_FAILURE, pod_restart_policy_override="Never")


class LauncherWorld(World):
    """Its kubelet reports when containers are ready."""

    def __init__(self, job: dict[str, Any], starts_after: ReplicaType | None = WORKER) -> None:
        super().__init__(job)
        self.framework = launcher_framework(starts_after)

    def make_ready(self, *names: str, ready: bool = True) -> None:
        """The containers of these pods, or of all that run, are ready or not."""
        for name, pod in self.pods.items():
            if pod["status"]["phase"] == "Running" and (not names or name in names):
                containers = [{**each, "ready": ready} for each in pod["status"]["containerStatuses"]]
                self._set_pod(name, {**pod["status"], "containerStatuses": containers})

    def run_ready(self, *names: str) -> None:
        """The kubelet starts these pods, or all that wait, and they are ready."""
        self.run(*names)
        self.make_ready(*names)

    def report(self, name: str, status: Mapping[str, Any]) -> None:
        """Change what the kubelet reports of a pod."""
        self._set_pod(name, {**self.pods[name]["status"], **status})

    def settled_creates(self) -> list[Create]:
        """What is created until nothing more is to be done."""
        creates: list[Create] = []
        while not is_idle(step := self.step()):
            creates += step.creates
        return creates

    def settle_and_wait(self, limit: int = 20) -> None:
        """Settle, and wait for all that is due; pods that are deleted are gone."""
        for _ in range(limit):
            due = self.settle().requeue_at
            if due is None:
                return
            self.pass_time(max(0.0, (due - self.now).total_seconds()))


def started(job: dict[str, Any] | None = None, starts_after: ReplicaType | None = WORKER) -> LauncherWorld:
    """The workers are there and ready, and the launcher has run for a while."""
    world = LauncherWorld(job or launcher_job(), starts_after)
    world.settle()
    world.admit()
    world.settle()
    world.pass_time(1)
    world.run_ready()
    world.settle()
    world.pass_time(1)
    world.run_ready()
    world.settle()
    world.pass_time(600)
    return world
