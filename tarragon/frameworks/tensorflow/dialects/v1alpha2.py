"""kubeflow.org/v1alpha2 of tf-operator 0.2 and 0.3. Where these differ, it follows 0.3.0, the last one to serve it.

TF_CONFIG has bare service names and no evaluators, there are cleanPodPolicy and ttlSecondsAfterFinished, no label marks
the master, and the replica counts in the status are called `tfReplicaStatuses`.
"""

from __future__ import annotations

from dataclasses import replace

from tarragon.frameworks.tensorflow.dialects import v1beta1
from tarragon.frameworks.tensorflow.labels import UP_TO_TF_OPERATOR_0_3
from tarragon.frameworks.tensorflow.map_decoding import GenerationFields, decoder
from tarragon.frameworks.tensorflow.tf_config import EVERY_CONTAINER, TFConfigOptions, bare_host, discovery_config
from tarragon.job import training_operator_status
from tarragon.job.model import CleanPodPolicy, TrainingJob
from tarragon.job.status import JobStatus
from tarragon.kube.meta import Json

NAME = "kubeflow.org/v1alpha2"
COUNTS = "tfReplicaStatuses"


def status(job: TrainingJob, said: JobStatus) -> dict[str, Json]:
    fields = training_operator_status.status_fields(job, said)
    return {COUNTS if name == "replicaStatuses" else name: value for name, value in fields.items()}


DIALECT = replace(
    v1beta1.DIALECT,
    name=NAME,
    api_version=NAME,
    decode=decoder(
        GenerationFields(generation=NAME, clean_pods=CleanPodPolicy.RUNNING, api_version=NAME, fields=v1beta1.FIELDS),
    ),
    labels=UP_TO_TF_OPERATOR_0_3.of_replica,
    selector=UP_TO_TF_OPERATOR_0_3.of_job,
    worker_selector=UP_TO_TF_OPERATOR_0_3.of_workers,
    discovery_config=discovery_config(
        TFConfigOptions(container=EVERY_CONTAINER, lists_evaluator=False, host=bare_host, includes_single_replica=True)
    ),
    status_fields=status,
)
