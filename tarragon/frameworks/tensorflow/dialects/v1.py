"""kubeflow.org/v1 of the training operator, with policies in `spec.runPolicy`."""

from __future__ import annotations

from tarragon.frameworks.kubeflow.fields import condition_reason
from tarragon.frameworks.kubeflow.labels import UP_TO_TRAINING_OPERATOR_1_6
from tarragon.frameworks.plugin import Dialect
from tarragon.frameworks.tensorflow.dialects.recognition import is_nested
from tarragon.frameworks.tensorflow.fields import KIND, MAIN_CONTAINER
from tarragon.frameworks.tensorflow.labels import SINCE_TRAINING_OPERATOR_1_7
from tarragon.frameworks.tensorflow.map_decoding import GenerationFields, decoder
from tarragon.frameworks.tensorflow.shape import NAMES
from tarragon.frameworks.tensorflow.tf_config import TFConfigOptions, discovery_config
from tarragon.job import training_operator_status
from tarragon.job.exit_codes import SINCE_TRAINING_OPERATOR_1_5
from tarragon.job.model import CleanPodPolicy, Replica, TrainingJob

NAME = "kubeflow.org/v1"


def labels(job: TrainingJob, replica: Replica) -> dict[str, str]:
    """The new and the old labels: SDKs select by the new ones, old dashboards by the old ones."""
    old = UP_TO_TRAINING_OPERATOR_1_6.of_replica(job, replica)
    return old | SINCE_TRAINING_OPERATOR_1_7.of_replica(job, replica)


DIALECT = Dialect(
    name=NAME,
    api_version="kubeflow.org/v1",
    matches=is_nested,
    decode=decoder(GenerationFields(generation=NAME, clean_pods=CleanPodPolicy.NONE)),
    names=NAMES,
    labels=labels,
    selector=SINCE_TRAINING_OPERATOR_1_7.of_job,
    worker_selector=SINCE_TRAINING_OPERATOR_1_7.of_workers,
    discovery_config=discovery_config(TFConfigOptions(container=MAIN_CONTAINER, lists_evaluator=True)),
    status_fields=training_operator_status.status_fields,
    condition_reason=condition_reason(KIND, invalid="TFJobFailedValidation"),
    exit_codes=SINCE_TRAINING_OPERATOR_1_5,
)
