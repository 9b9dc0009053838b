"""Jobs that kube-scheduler places pod by pod, because the operator can't see everything that placement needs.

This is decided once for each job and recorded in its admission, which then names no nodes: permissions that are granted
or revoked later do not affect running jobs.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace

from tarragon.job.model import ReplicaType
from tarragon.job.status import Admission

LEFT_TO_KUBE_SCHEDULER = "LeftToKubeScheduler"
"""The reason of the condition Admitted of such a job."""
LEFT_MESSAGE = "kube-scheduler places {total} replicas one by one: the operator can't see all nodes and pods"


def is_left_to_kube_scheduler(admission: Admission | None) -> bool:
    """Whether the admission is left to kube-scheduler: it has fewer nodes than replicas."""
    return (
        admission is not None
        and admission.admitted_at is not None
        and len(admission.nodes) < sum(admission.size.values())
    )


def leave_to_kube_scheduler(before: Admission, requested: Mapping[ReplicaType, int], now: dt.datetime) -> Admission:
    """Return an admission without nodes at the requested size. Nodes that are already assigned are kept."""
    size = {kind: count for kind, count in requested.items() if count}
    if before.admitted_at is None:
        return Admission(queued_at=before.queued_at, admitted_at=now, size=size)
    nodes = {replica: node for replica, node in before.nodes.items() if replica.index < size.get(replica.type, 0)}
    return replace(before, size=size, nodes=nodes)
