"""Jobs that kube-scheduler places pod by pod: the operator can't see all that placement needs, or they claim devices.

This is decided once for each job and recorded in its admission, which then names no nodes: permissions that are granted
or revoked later do not affect running jobs.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace

from tarragon.job.model import ReplicaType, TrainingJob
from tarragon.job.status import Admission

LEFT_TO_KUBE_SCHEDULER = "LeftToKubeScheduler"
"""The reason of the condition Admitted of such a job."""
LEFT_MESSAGE = "kube-scheduler places {total} replicas one by one: the operator can't see all nodes and pods"
LEFT_CLAIMS_MESSAGE = (
    "kube-scheduler places {total} replicas one by one: only it knows which nodes have the devices "
    "of their resourceClaims"
)


def claims_devices(job: TrainingJob) -> bool:
    """Whether pods of the job claim devices (dynamic resource allocation), which kube-scheduler allocates as it binds.

    A node chosen by CPU and memory alone would often have none of them.
    """
    return any(group.template.get("spec", {}).get("resourceClaims") for group in job.replica_specs if group.replicas)


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
