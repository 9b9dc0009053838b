"""The replica types of TFJob, in the order of the API's documentation."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.job.model import Decides, EndsAfterJob, ReplicaRole, ReplicaType

CHIEF = ReplicaType("Chief")
MASTER = ReplicaType("Master")
"""The older name of the chief."""
PS = ReplicaType("PS")
EVALUATOR = ReplicaType("Evaluator")

ROLES: Mapping[ReplicaType, ReplicaRole] = MappingProxyType(
    {
        CHIEF: ReplicaRole(decides=Decides.AS_CHIEF),
        MASTER: ReplicaRole(decides=Decides.AS_CHIEF),
        PS: ReplicaRole(is_anchor=True, ends_after_job=EndsAfterJob.NEVER),
        WORKER: ReplicaRole(decides=Decides.WITHOUT_CHIEF, is_elastic=True),
        EVALUATOR: ReplicaRole(ends_after_job=EndsAfterJob.AFTER_LAST_CHECKPOINT),
    }
)

START_ORDER = (PS, CHIEF, MASTER, WORKER, EVALUATOR)
"""Servers first: workers that don't find them wait up to 30 seconds before they retry."""

LIST_TYPES = (MASTER, PS, WORKER)
"""The types of the generations with a list of replicas, where they are written in upper case."""
