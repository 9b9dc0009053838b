"""The GPUs of hollow nodes on which pods hold whole GPUs for others, as the operator's anchors do on real nodes.

A real kubelet knows nothing of shares: a program that names a GPU gets it. Here a share is refused unless an anchor
holds that GPU, so that tests notice a GPU that is used by pods and sold to others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from tarragon.kube.scheduling.gpu_shares import GPU_UUID_ANNOTATION, GpuShare
from tarragon.kube.scheduling.node_gpu_sharing import GPU_ANCHOR_LABEL
from tarragon.localcluster.kubelet.devices.vgpus import NodeVgpus
from tarragon.localcluster.kubelet.hollow.pod import HollowPod
from tarragon.localcluster.kubelet.pod.admission import chosen_vgpu

_log = structlog.get_logger()


@dataclass(slots=True)
class _Anchor:
    number: int | None
    uuid: str
    is_leaving: bool = False


class AnchoredGpus:
    """The anchors of one node, and the shares of their GPUs, which have `gpu_memory` bytes each, 0 for unknown."""

    def __init__(self, node: str, gpu_memory: int) -> None:
        self._node = node
        self._anchors: dict[str, _Anchor] = {}
        self._shares = NodeVgpus(gpu_memory)
        self._number_of: dict[str, int] = {}
        """By UID of a pod with a share, the vGPU."""

    def hold(self, pod: HollowPod) -> str:
        """Return the UUID of the GPU that an admitted anchor holds: the one that it had, else one that none has."""
        anchor = self._anchors.get(pod.metadata.uid)
        if anchor is None:
            taken = {each.uuid for each in self._anchors.values()}
            known = pod.metadata.annotations.get(GPU_UUID_ANNOTATION)
            uuid = known or next(uuid for uuid in map(self._uuid, range(len(taken) + 1)) if uuid not in taken)
            anchor = self._anchors[pod.metadata.uid] = _Anchor(chosen_vgpu(pod.metadata.annotations), uuid)
        return anchor.uuid

    def leave(self, uid: str) -> None:
        """The anchor is being deleted: no share of its GPU is admitted any more."""
        if uid in self._anchors:
            self._anchors[uid].is_leaving = True

    def refusal(self, pod: HollowPod, share: GpuShare) -> str:
        """Why a share is refused; empty if it is not."""
        why = self._fault(pod, share)
        if why:
            _log.error("a share of a GPU is refused", node=self._node, pod=str(pod.key), why=why)
        return why

    def share(self, pod: HollowPod, share: GpuShare) -> None:
        """Count a share, also of a pod that already runs."""
        number = chosen_vgpu(pod.metadata.annotations)
        if number is not None:
            uuid = pod.metadata.annotations.get(GPU_UUID_ANNOTATION, "")
            self._shares.add(pod.metadata.uid, self._shares.describe(str(pod.key), share, number, uuid))
            self._number_of[pod.metadata.uid] = number

    def release(self, uid: str) -> None:
        self._shares.remove(uid)
        self._number_of.pop(uid, None)
        anchor = self._anchors.pop(uid, None)
        if anchor is not None and anchor.number in self._number_of.values():
            _log.error("an anchor has gone while pods share its GPU", node=self._node, vgpu=anchor.number)

    def _fault(self, pod: HollowPod, share: GpuShare) -> str:
        uuid = pod.metadata.annotations.get(GPU_UUID_ANNOTATION, "")
        held = {each.number: each.uuid for each in self._anchors.values() if not each.is_leaving}
        try:
            number = chosen_vgpu(pod.metadata.annotations)
            if number is None or held.get(number) != uuid:
                return f"no anchor holds the GPU {uuid} of vGPU {number}"
            self._shares.part(str(pod.key), share, number, [uuid])
        except ValueError as error:
            return str(error)
        return ""

    def _uuid(self, index: int) -> str:
        digest = hashlib.sha256(f"{self._node}/{index}".encode()).hexdigest()
        return f"GPU-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"


def is_anchor(labels: Mapping[str, str]) -> bool:
    """Whether a pod with these labels holds a GPU for others."""
    return labels.get(GPU_ANCHOR_LABEL) == "true"
