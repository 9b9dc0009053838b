"""The labels of pods and services of the training operator. Log collectors, SDKs and selectors rely on them."""

from __future__ import annotations

from dataclasses import dataclass

from tarragon.frameworks.kubeflow.fields import GROUP, WORKER
from tarragon.job.model import Replica, TrainingJob


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelNames:
    """The label keys of a generation. The values are the same in all generations."""

    owner: tuple[str, str]
    """The key and the fixed value of the label that identifies the operator."""
    job: str
    type: str
    index: str
    role: str
    """The key of the role label; empty if the generation has none."""

    def of_job(self, job: TrainingJob) -> dict[str, str]:
        key, value = self.owner
        return {key: value, self.job: job.key.name}

    def of_workers(self, job: TrainingJob) -> dict[str, str]:
        return {**self.of_job(job), self.type: WORKER.lower()}

    def of_replica(self, job: TrainingJob, replica: Replica) -> dict[str, str]:
        """The labels of a replica. The role label marks the chief (worker 0 if there is no chief) as master."""
        labels = {**self.of_job(job), self.type: replica.type.lower(), self.index: str(replica.index)}
        return {**labels, self.role: "master"} if self.role and replica == job.chief else labels


def since_training_operator_1_7(controller: str) -> LabelNames:
    """The labels of a kind whose controller has this name: `tfjob-controller`."""
    return LabelNames(
        owner=("training.kubeflow.org/operator-name", controller),
        job="training.kubeflow.org/job-name",
        type="training.kubeflow.org/replica-type",
        index="training.kubeflow.org/replica-index",
        role="training.kubeflow.org/job-role",
    )


UP_TO_TRAINING_OPERATOR_1_6 = LabelNames(
    owner=("group-name", GROUP),
    job="job-name",
    type="replica-type",
    index="replica-index",
    role="job-role",
)
