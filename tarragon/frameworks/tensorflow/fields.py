"""The field names and constants of TFJob manifests of all generations."""

from __future__ import annotations

from enum import StrEnum

from tarragon.frameworks.kubeflow import fields as kubeflow

KIND = "TFJob"
MAIN_CONTAINER = "tensorflow"
PORT_NAME = "tfjob-port"
DEFAULT_PORT = 2222


class SpecField(StrEnum):
    """The fields of `spec`."""

    REPLICAS = "tfReplicaSpecs"
    LIST = "replicaSpecs"
    RUN_POLICY = kubeflow.RUN_POLICY
    SUCCESS_POLICY = "successPolicy"
    DYNAMIC_WORKER = "enableDynamicWorker"
    MAX_INSTANCES = "max-instances"
    MIN_INSTANCES = "min-instances"


NESTED_ONLY = frozenset({SpecField.RUN_POLICY, SpecField.SUCCESS_POLICY, SpecField.DYNAMIC_WORKER})
ELASTIC_FIELDS = frozenset({SpecField.MAX_INSTANCES, SpecField.MIN_INSTANCES})

LIST_SPELLINGS: tuple[str, ...] = (SpecField.LIST.value, "replica_specs")
"""The names of the list of replicas in v1alpha1 and mlkube.io."""

FIELDS_WITHOUT_EFFECT = frozenset(
    {*LIST_SPELLINGS, "RuntimeId", "tfImage", "terminationPolicy", "schedulerName", "tensorboard"}
)
"""Fields that are known but have no effect in a generation with a map of replicas."""
