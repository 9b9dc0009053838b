"""Force-deletes pods that are stuck in deletion on lost nodes, so that their names can be used again.

Kubernetes keeps such a pod until its node is back or deleted. Containers that still run there have been asked to stop;
if the kubelet comes back, it stops them because their pod is gone.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import replace

from tarragon.kube.core import Pod
from tarragon.kube.meta import Key
from tarragon.plan.lifecycle.graceful_eviction import delete_pod
from tarragon.plan.view.actions import Delete
from tarragon.plan.view.job_view import JobView
from tarragon.plan.view.stalls import SHORT_DELAY


def force_deletes(view: JobView) -> Iterator[Delete]:
    for pod, at in _overdue(view):
        if at <= view.now:
            why = f"node {pod.spec.node_name} is lost and can't confirm that the pod has ended"
            yield replace(delete_pod(pod, why), force=True)


def next_force_delete_at(view: JobView) -> dt.datetime | None:
    """Return when the next pod is to be force-deleted, if its node is not back by then."""
    return min((at for _, at in _overdue(view) if at > view.now), default=None)


def _overdue(view: JobView) -> Iterator[tuple[Pod, dt.datetime]]:
    """Yield pods in deletion on lost nodes, and when to force-delete them. The delay covers slow and flapping nodes."""
    nodes = view.observed.nodes
    for pod in view.own_pods if nodes is not None else ():
        due = pod.metadata.deletion_timestamp
        if nodes is None or due is None or not pod.spec.node_name:
            continue
        node = nodes.get(Key("", pod.spec.node_name))
        if node is None:
            yield pod, due + SHORT_DELAY
        elif not node.is_ready:
            yield pod, max(due, node.ready_since or due) + SHORT_DELAY
