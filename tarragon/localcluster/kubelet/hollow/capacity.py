"""What the pods of hollow nodes have been promised: as any kubelet, a hollow one refuses who does not fit."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from tarragon.base.resources import Resources, minus, total
from tarragon.kube import core
from tarragon.kube.codec import decode, encode
from tarragon.localcluster.fit import wanted
from tarragon.localcluster.kubelet.hollow.pod import HollowPod
from tarragon.localcluster.kubelet.pod.admission import refusal
from tarragon.localcluster.kubelet.pod.status import Verdict


class Room:
    """Of nodes that all have the same `capacity`, in thousandths."""

    def __init__(self, capacity: Resources) -> None:
        self._capacity = capacity
        self._used: dict[str, Resources] = {}
        self._promised: dict[str, tuple[str, Resources]] = {}

    def admit(self, pod: HollowPod) -> Verdict | None:
        """Why the pod is not taken; None when it is, or has been."""
        if pod.metadata.uid in self._promised:
            return None
        verdict = refusal(_needs(pod), self._used.get(pod.spec.node_name, {}), self._capacity, ())
        if verdict is None:
            self.promise(pod)
        return verdict

    def promise(self, pod: HollowPod) -> None:
        """Also of one that runs already."""
        uid, node = pod.metadata.uid, pod.spec.node_name
        if uid not in self._promised:
            self._promised[uid] = (node, _needs(pod))
            self._used[node] = total([self._used.get(node, {}), _needs(pod)])

    def release(self, pod: HollowPod) -> None:
        node, needs = self._promised.pop(pod.metadata.uid, ("", {}))
        if node:
            self._used[node] = minus(self._used[node], needs)


def _needs(pod: HollowPod) -> Resources:
    # Pods of one template differ in their node only.
    return _wanted(encode(msgspec.structs.replace(pod.spec, node_name="")))


@lru_cache(maxsize=4096)
def _wanted(spec: bytes) -> Resources:
    return wanted(core.Pod(spec=decode(spec, core.PodSpec)))
