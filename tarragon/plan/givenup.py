"""Pods that were to be gone long ago, on nodes that can't say that they are: their names are needed elsewhere.

Kubernetes keeps such a pod until its node is back, or deleted. What of it may still run there has been told to end, and
its kubelet, if it comes back, ends it for want of the pod.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tarragon.kube.meta import Key
from tarragon.plan.leaving import delete_pod
from tarragon.plan.scene import Scene
from tarragon.plan.stalls import SOON
from tarragon.plan.step import Delete


def given_up(scene: Scene) -> Iterator[Delete]:
    nodes = scene.observed.nodes
    for pod in scene.own_pods if nodes is not None else ():
        due = pod.metadata.deletion_timestamp
        if nodes is None or due is None or due + SOON > scene.now or not pod.spec.node_name:
            continue
        node = nodes.get(Key("", pod.spec.node_name))
        if node is None or not node.is_ready:
            why = f"node {pod.spec.node_name}, which is lost, does not end it"
            yield replace(delete_pod(pod, why), at_once=True)
