"""The field names and constants of TFJob manifests of all generations."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from tarragon.job.conditions import INVALID

KIND = "TFJob"
GROUP = "kubeflow.org"
MAIN_CONTAINER = "tensorflow"
PORT_NAME = "tfjob-port"
DEFAULT_PORT = 2222


class SpecField(StrEnum):
    """The fields of `spec`."""

    REPLICAS = "tfReplicaSpecs"
    LIST = "replicaSpecs"
    RUN_POLICY = "runPolicy"
    SUCCESS_POLICY = "successPolicy"
    DYNAMIC_WORKER = "enableDynamicWorker"
    MAX_INSTANCES = "max-instances"
    MIN_INSTANCES = "min-instances"


class PolicyField(StrEnum):
    """The fields of `spec.runPolicy`. In flat generations the first four are directly in `spec`."""

    CLEAN_POD_POLICY = "cleanPodPolicy"
    TTL = "ttlSecondsAfterFinished"
    ACTIVE_DEADLINE = "activeDeadlineSeconds"
    BACKOFF_LIMIT = "backoffLimit"
    SCHEDULING = "schedulingPolicy"
    SUSPEND = "suspend"
    MANAGED_BY = "managedBy"


FLAT_POLICIES = frozenset(
    {PolicyField.CLEAN_POD_POLICY, PolicyField.TTL, PolicyField.ACTIVE_DEADLINE, PolicyField.BACKOFF_LIMIT}
)
NESTED_ONLY = frozenset({SpecField.RUN_POLICY, SpecField.SUCCESS_POLICY, SpecField.DYNAMIC_WORKER})
ELASTIC_FIELDS = frozenset({SpecField.MAX_INSTANCES, SpecField.MIN_INSTANCES})

LIST_SPELLINGS: tuple[str, ...] = (SpecField.LIST.value, "replica_specs")
"""The names of the list of replicas in v1alpha1 and mlkube.io."""

FIELDS_WITHOUT_EFFECT = frozenset(
    {*LIST_SPELLINGS, "RuntimeId", "tfImage", "terminationPolicy", "schedulerName", "tensorboard"}
)
"""Fields that are known but have no effect in a generation with a map of replicas."""


def condition_reason(invalid: str) -> Callable[[str], str]:
    """A generation's spelling of condition reasons. The generations differ only in that for an invalid manifest."""
    return lambda reason: invalid if reason == INVALID else f"{KIND}{reason}"
