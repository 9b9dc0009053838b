"""kubeflow.org/v1beta1 of tf-operator 0.4: older labels, neither activeDeadlineSeconds nor backoffLimit."""

from __future__ import annotations

from dataclasses import replace

from tarragon.frameworks.kubeflow.fields import PolicyField
from tarragon.frameworks.tensorflow.dialects import v1beta2
from tarragon.frameworks.tensorflow.fields import SpecField
from tarragon.frameworks.tensorflow.labels import UP_TO_TF_OPERATOR_0_4
from tarragon.frameworks.tensorflow.map_decoding import GenerationFields, decoder
from tarragon.job.model import CleanPodPolicy

NAME = "kubeflow.org/v1beta1"

FIELDS = frozenset({SpecField.REPLICAS, PolicyField.CLEAN_POD_POLICY, PolicyField.TTL})

DIALECT = replace(
    v1beta2.DIALECT,
    name=NAME,
    api_version=NAME,
    decode=decoder(
        GenerationFields(generation=NAME, clean_pods=CleanPodPolicy.RUNNING, api_version=NAME, fields=FIELDS),
    ),
    labels=UP_TO_TF_OPERATOR_0_4.of_replica,
    selector=UP_TO_TF_OPERATOR_0_4.of_job,
    worker_selector=UP_TO_TF_OPERATOR_0_4.of_workers,
)
