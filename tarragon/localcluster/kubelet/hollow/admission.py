"""Allocations on hollow nodes: like any kubelet, the hollow one rejects pods that do not fit."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from tarragon.base.resources import Resources, add_resources, subtract
from tarragon.kube import core
from tarragon.kube.codec import decode, encode
from tarragon.kube.scheduling.pod_requests import resource_request
from tarragon.localcluster.kubelet.hollow.pod import HollowPod
from tarragon.localcluster.kubelet.pod.admission import rejection
from tarragon.localcluster.kubelet.pod.status import PodFailure


class HollowAllocations:
    """The allocations on nodes that all have the same `capacity`, in thousandths."""

    def __init__(self, capacity: Resources) -> None:
        self._capacity = capacity
        self._used: dict[str, Resources] = {}
        self._allocations: dict[str, tuple[str, Resources]] = {}

    def admit(self, pod: HollowPod) -> PodFailure | None:
        """Admit the pod: None, or why it is rejected. An admitted pod stays admitted."""
        if pod.metadata.uid in self._allocations:
            return None
        verdict = rejection(_requests(pod), self._used.get(pod.spec.node_name, {}), self._capacity, ())
        if verdict is None:
            self.allocate(pod)
        return verdict

    def allocate(self, pod: HollowPod) -> None:
        """Allocate the pod's requests, also for a pod that already runs."""
        uid, node = pod.metadata.uid, pod.spec.node_name
        if uid not in self._allocations:
            self._allocations[uid] = (node, _requests(pod))
            self._used[node] = add_resources([self._used.get(node, {}), _requests(pod)])

    def release(self, pod: HollowPod) -> None:
        node, requests = self._allocations.pop(pod.metadata.uid, ("", {}))
        if node:
            self._used[node] = subtract(self._used[node], requests)


def _requests(pod: HollowPod) -> Resources:
    # Without the node name, pods of one template share a cache entry.
    return _spec_requests(encode(msgspec.structs.replace(pod.spec, node_name="")))


@lru_cache(maxsize=4096)
def _spec_requests(spec: bytes) -> Resources:
    return resource_request(decode(spec, core.PodSpec))
