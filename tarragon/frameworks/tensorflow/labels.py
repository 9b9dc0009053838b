"""The labels of pods and services in each generation. Log collectors, SDKs and selectors rely on them."""

from __future__ import annotations

from dataclasses import replace

from tarragon.frameworks.kubeflow.fields import GROUP
from tarragon.frameworks.kubeflow.labels import LabelNames, since_training_operator_1_7

SINCE_TRAINING_OPERATOR_1_7 = since_training_operator_1_7("tfjob-controller")

SINCE_TF_OPERATOR_0_5 = LabelNames(
    owner=("group-name", GROUP),
    job="tf-job-name",
    type="tf-replica-type",
    index="tf-replica-index",
    role="tf-job-role",
)

UP_TO_TF_OPERATOR_0_4 = LabelNames(
    owner=("group_name", GROUP),
    job="tf_job_name",
    type="tf-replica-type",
    index="tf-replica-index",
    role="tf_job_role",
)

UP_TO_TF_OPERATOR_0_3 = replace(UP_TO_TF_OPERATOR_0_4, role="")
