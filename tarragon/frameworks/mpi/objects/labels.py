"""The labels of pods and Services in each generation of MPIJob."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tarragon.frameworks.kubeflow.fields import GROUP, WORKER
from tarragon.frameworks.kubeflow.labels import UP_TO_TRAINING_OPERATOR_1_6, since_training_operator_1_7
from tarragon.frameworks.mpi.fields import LAUNCHER
from tarragon.frameworks.mpi.options import options_of
from tarragon.job.model import Replica, TrainingJob

_JOB_NAME, _JOB_ROLE, _INDEX = (f"training.kubeflow.org/{name}" for name in ("job-name", "job-role", "replica-index"))


@dataclass(frozen=True, slots=True)
class MpiLabels:
    """The labels of a generation: of all objects of a job, and of a replica in addition."""

    of_job: Callable[[TrainingJob], dict[str, str]]
    _added: Callable[[TrainingJob, Replica], dict[str, str]]
    _workers: dict[str, str]

    def of_replica(self, job: TrainingJob, replica: Replica) -> dict[str, str]:
        return {**self.of_job(job), **self._added(job, replica)}

    def of_workers(self, job: TrainingJob) -> dict[str, str]:
        return {**self.of_job(job), **self._workers}


def _role(_: TrainingJob, replica: Replica) -> dict[str, str]:
    return {"mpi_role_type": replica.type.lower()}


def _v1(job: TrainingJob, replica: Replica) -> dict[str, str]:
    """The labels of the training operator, old and new, and of mpi-operator 0.2 and 0.3."""
    own = {"mpi-job-name": job.key.name, "mpi-job-role": replica.type.lower()}
    return UP_TO_TRAINING_OPERATOR_1_6.of_replica(job, replica) | own | _TRAINING_OPERATOR.of_replica(job, replica)


def _v2(job: TrainingJob, replica: Replica) -> dict[str, str]:
    """The role, and an index by which Kueue orders pods: of workers, and of a launcher that works, which is first."""
    role = {_JOB_ROLE: replica.type.lower()}
    is_launcher_first = options_of(job).launcher_works
    if replica.type == LAUNCHER:
        return {**role, _INDEX: "0"} if is_launcher_first else role
    return {**role, _INDEX: str(replica.index + is_launcher_first)}


_TRAINING_OPERATOR = since_training_operator_1_7("mpijob-controller")

UP_TO_V1ALPHA2 = MpiLabels(
    lambda job: {"app": job.key.name, "group_name": GROUP, "mpi_job_name": job.key.name},
    _role,
    {"mpi_role_type": WORKER.lower()},
)
V1 = MpiLabels(_TRAINING_OPERATOR.of_job, _v1, {_TRAINING_OPERATOR.type: WORKER.lower()})
V2BETA1 = MpiLabels(
    lambda job: {"training.kubeflow.org/operator-name": "mpi-operator", _JOB_NAME: job.key.name},
    _v2,
    {_JOB_ROLE: WORKER.lower()},
)
