"""Gangs that kube-scheduler places, pod by pod, because we do not see all that is needed to find places for them.

That is decided once a job, and stands in its admission: one that names no node. So a permission that comes or goes
changes nothing for the jobs that run.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace

from tarragon.job.model import ReplicaType
from tarragon.job.status import Admission

LEFT = "LeftToKubeScheduler"
"""The reason of the condition Admitted."""
WORDS = "kube-scheduler places {total} replicas, each for itself: the operator may not see all nodes and pods"


def is_left(admission: Admission | None) -> bool:
    """Admitted, without a place for every replica."""
    return (
        admission is not None and admission.admitted is not None and len(admission.nodes) < sum(admission.size.values())
    )


def left(before: Admission, wish: Mapping[ReplicaType, int], now: dt.datetime) -> Admission:
    """Admitted at its wish. Places that it has already stay its own."""
    size = {kind: number for kind, number in wish.items() if number}
    if before.admitted is None:
        return Admission(queued=before.queued, admitted=now, size=size)
    nodes = {replica: node for replica, node in before.nodes.items() if replica.index < size.get(replica.type, 0)}
    return replace(before, size=size, nodes=nodes)
