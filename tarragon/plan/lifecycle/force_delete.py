"""Pods that were to be gone long ago, on nodes that can't say that they are: their names are needed elsewhere.

Kubernetes keeps such a pod until its node is back, or deleted. What of it may still run there has been told to end, and
its kubelet, if it comes back, ends it for want of the pod.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import replace

from tarragon.kube.core import Pod
from tarragon.kube.meta import Key
from tarragon.plan.lifecycle.graceful_eviction import delete_pod
from tarragon.plan.view.actions import Delete
from tarragon.plan.view.job_view import Scene
from tarragon.plan.view.stalls import SOON


def given_up(scene: Scene) -> Iterator[Delete]:
    for pod, at in _overdue(scene):
        if at <= scene.now:
            why = f"node {pod.spec.node_name}, which is lost, does not end it"
            yield replace(delete_pod(pod, why), at_once=True)


def gives_up_at(scene: Scene) -> dt.datetime | None:
    """When the next one is to be given up, if its node does not come back before."""
    return min((at for _, at in _overdue(scene) if at > scene.now), default=None)


def _overdue(scene: Scene) -> Iterator[tuple[Pod, dt.datetime]]:
    """Pods that are to be gone, with when they are given up. A node that is late, or silent for a moment, ends them."""
    nodes = scene.observed.nodes
    for pod in scene.own_pods if nodes is not None else ():
        due = pod.metadata.deletion_timestamp
        if nodes is None or due is None or not pod.spec.node_name:
            continue
        node = nodes.get(Key("", pod.spec.node_name))
        if node is None:
            yield pod, due + SOON
        elif not node.is_ready:
            yield pod, max(due, node.ready_since or due) + SOON
