"""Allocations on hollow nodes: like any kubelet, the hollow one rejects pods that do not fit."""

from __future__ import annotations

import contextlib
from functools import lru_cache

import msgspec

from tarragon.base.resources import NVIDIA_GPU, Resources, add_resources, subtract
from tarragon.kube import core
from tarragon.kube.codec import decode, encode
from tarragon.kube.scheduling.gpu_shares import SHARE_RESOURCES, GpuShare, share_of
from tarragon.kube.scheduling.pod_requests import resource_request
from tarragon.localcluster.kubelet.devices.vgpus import NodeVgpus
from tarragon.localcluster.kubelet.hollow.anchored_gpus import AnchoredGpus, is_anchor
from tarragon.localcluster.kubelet.hollow.pod import HollowPod
from tarragon.localcluster.kubelet.pod.admission import chosen_vgpu, rejection, vgpu_unavailable, without_gpu
from tarragon.localcluster.kubelet.pod.status import PodFailure


class HollowAllocations:
    """The allocations on nodes that all have the same `capacity`, in thousandths.

    `gpu_memory` is that of each of their GPUs in bytes, 0 for unknown. If they have anchors, these hold the GPUs that
    pods share; otherwise the kubelet finds one for each vGPU.
    """

    def __init__(self, capacity: Resources, gpu_memory: int = 0, *, have_anchors: bool = False) -> None:
        self._capacity = capacity
        self._have_anchors = have_anchors
        self._anchored: dict[str, AnchoredGpus] = {}
        self._gpu_memory = gpu_memory
        self._used: dict[str, Resources] = {}
        self._allocations: dict[str, tuple[str, Resources]] = {}
        self._vgpus: dict[str, NodeVgpus] = {}

    def admit(self, pod: HollowPod) -> PodFailure | None:
        """Admit the pod: None, or why it is rejected. An admitted pod stays admitted."""
        if pod.metadata.uid in self._allocations:
            return None
        requests, share = _requests_and_share(pod)
        verdict = rejection(requests, self._used_of(pod.spec.node_name), self._capacity, ())
        if verdict is None and share is not None:
            verdict = self._refusal(pod, share) if self._have_anchors else self._vgpu_rejection(pod, share)
        if verdict is None:
            self.allocate(pod)
        return verdict

    def allocate(self, pod: HollowPod) -> None:
        """Allocate the pod's requests, also for a pod that already runs."""
        uid, node = pod.metadata.uid, pod.spec.node_name
        if uid in self._allocations:
            return
        requests, share = _requests_and_share(pod)
        self._allocations[uid] = (node, requests)
        self._used[node] = add_resources([self._used.get(node, {}), requests])
        if self._have_anchors:
            if is_anchor(pod.metadata.labels):
                self._anchored_on(node).hold(pod)
            elif share is not None:
                self._anchored_on(node).share(pod, share)
        elif share is not None:
            vgpus = self._vgpus_of(node)
            with contextlib.suppress(ValueError):  # an annotation that was edited since the pod was admitted
                number = chosen_vgpu(pod.metadata.annotations)
                number = vgpus.choose(share) if number is None else number
                vgpus.add(uid, vgpus.describe(str(pod.key), share, number, ""))

    def release(self, pod: HollowPod) -> None:
        node, requests = self._allocations.pop(pod.metadata.uid, ("", {}))
        if node:
            self._used[node] = subtract(self._used[node], requests)
            self._vgpus_of(node).remove(pod.metadata.uid)
            self._anchored_on(node).release(pod.metadata.uid)

    def held_gpu(self, pod: HollowPod) -> str:
        """The UUID of the GPU that an admitted pod holds for others; empty if it is no anchor."""
        is_one = self._have_anchors and is_anchor(pod.metadata.labels)
        return self._anchored_on(pod.spec.node_name).hold(pod) if is_one else ""

    def leave(self, pod: HollowPod) -> None:
        """The pod is being deleted."""
        self._anchored_on(pod.spec.node_name).leave(pod.metadata.uid)

    def _refusal(self, pod: HollowPod, share: GpuShare) -> PodFailure | None:
        refusal = self._anchored_on(pod.spec.node_name).refusal(pod, share)
        return vgpu_unavailable(ValueError(refusal)) if refusal else None

    def _vgpu_rejection(self, pod: HollowPod, share: GpuShare) -> PodFailure | None:
        node = pod.spec.node_name
        free = (self._capacity.get(NVIDIA_GPU, 0) - self._used_of(node).get(NVIDIA_GPU, 0)) // 1000
        try:
            number = chosen_vgpu(pod.metadata.annotations)
            self._vgpus_of(node).part(str(pod.key), share, number, [""] * free)
        except ValueError as error:
            return vgpu_unavailable(error)
        return None

    def _used_of(self, node: str) -> Resources:
        return add_resources([self._used.get(node, {}), {NVIDIA_GPU: 1000 * len(self._vgpus_of(node).devices)}])

    def _anchored_on(self, node: str) -> AnchoredGpus:
        return self._anchored.setdefault(node, AnchoredGpus(node, self._gpu_memory))

    def _vgpus_of(self, node: str) -> NodeVgpus:
        return self._vgpus.setdefault(node, NodeVgpus(self._gpu_memory))


def _requests_and_share(pod: HollowPod) -> tuple[Resources, GpuShare | None]:
    # Without the node name, pods of one template share a cache entry.
    spec, requests = _spec_and_requests(encode(msgspec.structs.replace(pod.spec, node_name="")))
    share = share_of(pod.metadata.annotations, pod.metadata.labels, spec.containers, spec.init_containers)
    # HAMi's resources are no device plugin's, so kubelets do not count them.
    requests = {name: amount for name, amount in requests.items() if name not in SHARE_RESOURCES}
    return (requests if share is None else without_gpu(requests)), share


@lru_cache(maxsize=4096)
def _spec_and_requests(spec: bytes) -> tuple[core.PodSpec, Resources]:
    decoded = decode(spec, core.PodSpec)
    return decoded, resource_request(decoded)
