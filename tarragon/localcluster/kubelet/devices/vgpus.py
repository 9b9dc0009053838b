"""The vGPUs of a node: GPUs that pods share. Pure.

A vGPU has a number, by which the operator's scheduler places replicas. It exists while a pod holds a part of it. It is
a free GPU of the node, chosen when the first of these pods arrives.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import msgspec

from tarragon.base.gpu_constraints import UNCONSTRAINED, GpuConstraints
from tarragon.base.resources import WHOLE_GPU, add_resources
from tarragon.kube.scheduling.gpu_shares import GpuShare
from tarragon.localcluster.kubelet.devices.devices import PRETENDED_NOTE

_UNITS = {"Gi": 2**30, "Mi": 2**20, "Ki": 2**10}


class VgpuPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a pod holds of a vGPU. `pod` is its namespace and name. Checkpoints contain it.

    Compute is in thousandths of the GPU. Memory is in bytes, 0 if neither the pod nor the node says how much it is.
    `constraints` matter for pods for which the kubelet chooses the vGPU.
    """

    pod: str
    number: int
    device: str
    request: int
    limit: int
    memory: int = 0
    constraints: GpuConstraints = UNCONSTRAINED


class NodeVgpus:
    """The vGPUs of one node, whose GPUs have `gpu_memory` bytes each, 0 for unknown."""

    def __init__(self, gpu_memory: int) -> None:
        self._gpu_memory = gpu_memory
        self._parts: dict[str, VgpuPart] = {}

    def add(self, uid: str, part: VgpuPart) -> None:
        self._parts[uid] = part

    def remove(self, uid: str) -> None:
        self._parts.pop(uid, None)

    def part_of(self, uid: str) -> VgpuPart | None:
        return self._parts.get(uid)

    @property
    def devices(self) -> dict[int, str]:
        """The GPU of each vGPU."""
        return {part.number: part.device for part in self._parts.values()}

    def part(self, pod: str, share: GpuShare, number: int | None, free: Sequence[str]) -> VgpuPart:
        """The part of a vGPU that a pod is to hold: of the one with this number, or of one that fits best.

        `free` are the GPUs that no pod holds. Raises ValueError when the pod does not fit.
        """
        number = self.choose(share) if number is None else number
        devices = self.devices
        if number not in devices and not free:
            raise ValueError(f"no GPU is free for vGPU {number}, requested: {_gpus(share.request)}")
        device = devices[number] if number in devices else free[0]
        if shortage := self._shortage(number, share, device):
            raise ValueError(shortage)
        return self.describe(pod, share, number, device)

    def describe(self, pod: str, share: GpuShare, number: int, device: str) -> VgpuPart:
        """The part of this vGPU that the share is, whether it fits or not."""
        return VgpuPart(
            pod=pod,
            number=number,
            device=device,
            request=share.request,
            limit=share.limit,
            memory=self._memory(share),
            constraints=share.constraints,
        )

    def choose(self, share: GpuShare) -> int:
        """The vGPU with the least left that the share fits on, else a new one."""
        devices = self.devices
        for number in devices:
            if _has_gpu_id(share, self._held(number)):
                if not _may_join(share, number, self._held(number)):
                    raise ValueError(f"vGPU {number} has the GPUID of the pod, but pods with which it may not share it")
                return number
        fitting = [
            (WHOLE_GPU - sum(part.request for part in self._held(number)), number)
            for number, device in devices.items()
            if _may_join(share, number, self._held(number)) and not self._shortage(number, share, device)
        ]
        if fitting:
            return min(fitting)[1]
        return next(number for number in range(len(devices) + 1) if number not in devices)

    def table(self) -> str | None:
        """The vGPUs as JSON, with their GPUs and what each pod holds in thousandths; None if there are none.

        Each pod has a line of its own: `kubectl describe node` cuts lines at 138 characters.
        """
        table = {
            str(number): {"gpu": device, "pods": {part.pod: part.request for part in self._held(number)}}
            for number, device in sorted(self.devices.items())
        }
        return json.dumps(table, indent=1) if table else None

    def _held(self, number: int) -> list[VgpuPart]:
        return sorted((part for part in self._parts.values() if part.number == number), key=lambda part: part.pod)

    def _memory(self, share: GpuShare) -> int:
        return self._gpu_memory * share.request // WHOLE_GPU if share.memory is None else share.memory

    def _shortage(self, number: int, share: GpuShare, device: str) -> str:
        """What the vGPU lacks for the share; empty if nothing."""
        held = self._held(number)
        name = f"vGPU {number}" + (f" (GPU {device})" if device else "")
        used = sum(part.request for part in held)
        if used + share.request > WHOLE_GPU:
            amounts = f"requested: {_gpus(share.request)}, used: {_gpus(used)}, capacity: 1"
            return f"{name} does not have enough left, {amounts}"
        used, memory = sum(part.memory for part in held), self._memory(share)
        if self._gpu_memory and used + memory > self._gpu_memory:
            amounts = f"requested: {_size(memory)}, used: {_size(used)}, capacity: {_size(self._gpu_memory)}"
            return f"{name} does not have enough memory left, {amounts}"
        return ""


def _may_join(share: GpuShare, number: int, held: Iterable[VgpuPart]) -> bool:
    """Whether KubeShare's rules let the share onto a vGPU with these pods."""
    held = list(held)
    marks = add_resources(part.constraints.marks(number, part.request) for part in held)
    used = sum(part.request for part in held)
    return bool(share.constraints.permit(number, used, lambda name: marks.get(name, 0)))


def _has_gpu_id(share: GpuShare, held: Iterable[VgpuPart]) -> bool:
    gpu_id = share.constraints.gpu_id
    return bool(gpu_id) and any(part.constraints.gpu_id == gpu_id for part in held)


def part_text(part: VgpuPart, memory: int, *, pretended: bool) -> str:
    """The part as text: `has 0.5 of GPU 1 (vGPU 0), 2.97Gi of 16Gi memory`. `memory` is that of the GPU."""
    text = f"has {_gpus(part.request)} of GPU {part.device} (vGPU {part.number})"
    if part.memory:
        text += f", {_size(part.memory)}{f' of {_size(memory)}' if memory else ''} memory"
    return text + (PRETENDED_NOTE if pretended else "")


def _gpus(thousandths: int) -> str:
    return f"{thousandths / WHOLE_GPU:g}"


def _size(amount: int) -> str:
    """Bytes with the largest unit that they have one of, and two decimals at most."""
    suffix, unit = next(((name, size) for name, size in _UNITS.items() if amount >= size), ("", 1))
    return f"{amount / unit:.2f}".rstrip("0").rstrip(".") + suffix
