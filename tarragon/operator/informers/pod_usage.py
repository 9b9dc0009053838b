"""Sums of the resources that all pods hold on each node, maintained incrementally from pod events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from tarragon.base.resources import Resources
from tarragon.client.informer.cache_reader import CacheReader
from tarragon.kube.codec import decode, encode
from tarragon.kube.core import Pod, PodSpec
from tarragon.kube.meta import Key
from tarragon.kube.scheduling.pod_requests import reports_resources, scheduling_request


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

    def __init__(self, pods: CacheReader[Pod]) -> None:
        self.held = NodeSums()
        """Resources held on each node, in thousandths."""
        self.terminating = NodeSums()
        """The part of `held` that belongs to terminating pods."""
        pods.add_event_handler(self._pod_changed)

    def _pod_changed(self, _: Key, old: Pod | None, new: Pod | None) -> None:
        if old is not None and holds_resources(old):
            self._apply(old, NodeSums.subtract)
        if new is not None and holds_resources(new):
            self._apply(new, NodeSums.add)

    def _apply(self, pod: Pod, change: Callable[[NodeSums, str, Resources], None]) -> None:
        amounts = requests_of(pod)
        change(self.held, node_of(pod), amounts)
        if pod.metadata.is_being_deleted:
            change(self.terminating, node_of(pod), amounts)


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
    if reports_resources(pod.status):
        return scheduling_request(pod.spec, pod.status)
    return _request(encode(pod.spec))


@lru_cache(maxsize=4096)
def _request(spec: bytes) -> Resources:
    """Cached, because most pods share a spec, and summing up the containers would be most of the work."""
    return scheduling_request(decode(spec, PodSpec))
