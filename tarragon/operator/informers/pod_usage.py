"""Sums of the resources that all pods hold on each node, maintained incrementally from pod events.

For Kubernetes an anchor pod holds a whole GPU. Here it holds next to nothing of a vGPU, which others may share at once;
but while it is there, nobody gets the GPU whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from tarragon.base.gpu_constraints import is_mark
from tarragon.base.resources import Resources, vgpu_share
from tarragon.client.informer.cache_reader import CacheReader
from tarragon.job.places import vgpu_of
from tarragon.kube.codec import decode, encode
from tarragon.kube.core import Pod, PodSpec
from tarragon.kube.meta import Key
from tarragon.kube.scheduling.gpu_shares import VGPU_ANNOTATION
from tarragon.kube.scheduling.pod_requests import reports_resources, scheduling_request
from tarragon.kube.scheduling.vgpu_requests import pod_request, without_gpus, without_hami
from tarragon.plan.objects.gpu_anchors import anchor_place
from tarragon.scheduling.api.gpu_shares import HELD_BY_ANCHOR


class NodeSums:
    """Resource amounts by node."""

    def __init__(self) -> None:
        self._by_node: dict[str, dict[str, int]] = {}
        self._changed_nodes: set[str] = set()

    def __len__(self) -> int:
        """Number of nodes with amounts."""
        return len(self._by_node)

    def on(self, node: str) -> Resources:
        return self._by_node.get(node, {})

    def add(self, node: str, amounts: Resources) -> None:
        self._add(node, amounts, 1)

    def subtract(self, node: str, amounts: Resources) -> None:
        self._add(node, amounts, -1)

    def take_changed_nodes(self) -> set[str]:
        """The nodes whose amounts may have changed since the last call."""
        touched, self._changed_nodes = self._changed_nodes, set()
        return touched

    def _add(self, node: str, amounts: Resources, sign: int) -> None:
        self._changed_nodes.add(node)
        sums = self._by_node.setdefault(node, {})
        for name, amount in amounts.items():
            sums[name] = sums.get(name, 0) + sign * amount
            if not sums[name]:
                del sums[name]
        if not sums:
            # Otherwise deleted nodes would accumulate in autoscaled clusters.
            del self._by_node[node]


class PodUsage:
    """Resources held by pods. A terminating pod still holds its resources, a finished one does not."""

    def __init__(self, pods: CacheReader[Pod], anchor_namespace: str = "") -> None:
        """`anchor_namespace` is that of the anchor pods; empty if there are none."""
        self._anchor_namespace = anchor_namespace
        self.held = NodeSums()
        """Resources held on each node, in thousandths."""
        self.terminating = NodeSums()
        """The part of `held` that belongs to terminating pods.

        With what anchors hold of vGPUs: each is deleted as soon as nobody shares its GPU.
        """
        self.has_marks = False
        """Whether pods with constraints on those with whom they share a GPU have been seen."""
        pods.add_event_handler(self._pod_changed)

    def _pod_changed(self, _: Key, old: Pod | None, new: Pod | None) -> None:
        if old is not None and holds_resources(old):
            self._apply(old, NodeSums.subtract)
        if new is not None and holds_resources(new):
            self._apply(new, NodeSums.add)

    def _apply(self, pod: Pod, change: Callable[[NodeSums, str, Resources], None]) -> None:
        place = anchor_place(pod, self._anchor_namespace)
        number = None if place is None else vgpu_of(place)
        vgpu = {} if number is None else {vgpu_share(number): HELD_BY_ANCHOR}
        amounts = requests_of(pod) if number is None else {**without_gpus(requests_of(pod)), **vgpu}
        change(self.held, node_of(pod), amounts)
        if VGPU_ANNOTATION in pod.metadata.annotations and not self.has_marks:
            self.has_marks = any(map(is_mark, amounts))
        if pod.metadata.is_being_deleted:
            change(self.terminating, node_of(pod), amounts)
        elif vgpu:
            change(self.terminating, node_of(pod), vgpu)


def holds_resources(pod: Pod) -> bool:
    return bool(node_of(pod)) and not pod.is_finished


def node_of(pod: Pod) -> str:
    """The pod's node or nominated node: capacity that kube-scheduler freed by preemption is reserved for the pod."""
    return pod.spec.node_name or pod.status.nominated_node_name


def nominated_nodes(pod: Pod) -> Iterator[str]:
    """The node on which kube-scheduler preempts other pods for this pending pod."""
    if not pod.spec.node_name and pod.status.nominated_node_name and not pod.is_finished:
        yield pod.status.nominated_node_name


def requests_of(pod: Pod) -> Resources:
    """The pod's resource requests, in thousandths."""
    if reports_resources(pod.status) or VGPU_ANNOTATION in pod.metadata.annotations:
        return pod_request(pod)
    return _request(encode(pod.spec))


@lru_cache(maxsize=4096)
def _request(spec: bytes) -> Resources:
    """Cached, because most pods share a spec, and summing up the containers would be most of the work."""
    return without_hami(scheduling_request(decode(spec, PodSpec)))
