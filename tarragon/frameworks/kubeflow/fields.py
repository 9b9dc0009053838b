"""The names that all job kinds of kubeflow.org share."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from tarragon.job.conditions import INVALID
from tarragon.job.model import ReplicaType

GROUP = "kubeflow.org"
RUN_POLICY = "runPolicy"
WORKER = ReplicaType("Worker")


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
SUSPEND_PATH = f"spec.{RUN_POLICY}.{PolicyField.SUSPEND}"


def condition_reason(kind: str, invalid: str) -> Callable[[str], str]:
    """A generation's spelling of condition reasons. The generations differ only in that for an invalid manifest."""
    return lambda reason: invalid if reason == INVALID else f"{kind}{reason}"
