"""kubeflow.org/v1 of tf-operator 0.5 to 1.0.0-rc, with policies directly in `spec`."""

from __future__ import annotations

from tarragon.frameworks.kubeflow.fields import condition_reason
from tarragon.frameworks.plugin import Dialect
from tarragon.frameworks.tensorflow.dialects.recognition import is_flat
from tarragon.frameworks.tensorflow.fields import KIND
from tarragon.frameworks.tensorflow.labels import SINCE_TF_OPERATOR_0_5
from tarragon.frameworks.tensorflow.map_decoding import GenerationFields, decoder
from tarragon.frameworks.tensorflow.shape import NAMES
from tarragon.frameworks.tensorflow.tf_config import EVERY_CONTAINER, TFConfigOptions, discovery_config
from tarragon.job import training_operator_status
from tarragon.job.exit_codes import UP_TO_TRAINING_OPERATOR_1_4
from tarragon.job.model import CleanPodPolicy

NAME = "kubeflow.org/v1-flat"

DIALECT = Dialect(
    name=NAME,
    api_version="kubeflow.org/v1",
    matches=is_flat,
    decode=decoder(GenerationFields(generation=NAME, clean_pods=CleanPodPolicy.RUNNING)),
    names=NAMES,
    labels=SINCE_TF_OPERATOR_0_5.of_replica,
    selector=SINCE_TF_OPERATOR_0_5.of_job,
    worker_selector=SINCE_TF_OPERATOR_0_5.of_workers,
    discovery_config=discovery_config(TFConfigOptions(container=EVERY_CONTAINER, lists_evaluator=False)),
    status_fields=training_operator_status.status_fields,
    condition_reason=condition_reason(KIND, invalid="InvalidTFJobSpec"),
    exit_codes=UP_TO_TRAINING_OPERATOR_1_4,
)
