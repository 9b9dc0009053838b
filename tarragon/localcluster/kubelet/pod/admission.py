"""Admits pods on a node: rejects a pod that does not fit beside the others, and allocates devices. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tarragon.base.quantity import format_milli
from tarragon.base.resources import NVIDIA_GPU, Resources, add_resources
from tarragon.kube import core
from tarragon.kube.codec import decode, encode
from tarragon.kube.scheduling.gpu_shares import VGPU_ANNOTATION, GpuShare, is_share_name, share_of_pod
from tarragon.kube.scheduling.pod_requests import resource_request
from tarragon.localcluster.kubelet.base.spec import Pod
from tarragon.localcluster.kubelet.devices.devices import DeviceIds
from tarragon.localcluster.kubelet.devices.devices import requested_devices as wanted_of
from tarragon.localcluster.kubelet.devices.vgpus import NodeVgpus, VgpuPart
from tarragon.localcluster.kubelet.pod.status import PodFailure


def pod_requests(pod: Pod) -> Resources:
    """The pod's resource requests, in thousandths, without what it requests of a GPU that it shares."""
    return _requests_and_share(pod)[0]


def _requests_and_share(pod: Pod) -> tuple[Resources, GpuShare | None]:
    described = core.Pod(metadata=pod.metadata, spec=decode(encode(pod.spec), core.PodSpec))
    requests, share = resource_request(described.spec), share_of_pod(described)
    return (requests if share is None else without_gpu(requests)), share


def without_gpu(requests: Resources) -> Resources:
    """The requests of a pod that shares a GPU, without those that describe its share."""
    return {name: amount for name, amount in requests.items() if name != NVIDIA_GPU and not is_share_name(name)}


def chosen_vgpu(annotations: Mapping[str, str]) -> int | None:
    """The vGPU that a scheduler has chosen. Raises ValueError for an annotation that is not a number."""
    text = annotations.get(VGPU_ANNOTATION)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"annotation {VGPU_ANNOTATION} must be the number of a vGPU, not {text!r}")
    return int(text)


def rejection(needed: Resources, used: Resources, allocatable: Resources, shared: Collection[str]) -> PodFailure | None:
    """The rejection of a pod that does not fit. Resources in `shared` may be overcommitted and are never short."""
    for name, amount in sorted(needed.items()):
        free = allocatable.get(name, 0) - used.get(name, 0)
        if amount > 0 and amount > free and name not in shared:
            message = (
                f"Pod was rejected: Node didn't have enough resource: {name}, requested: {format_milli(amount)}, "
                f"used: {format_milli(used.get(name, 0))}, capacity: {format_milli(allocatable.get(name, 0))}"
            )
            return PodFailure(reason=f"OutOf{name}", message=message)
    return None


def assign_devices(pod: Pod, resource: str, pool: Sequence[str]) -> Mapping[str, tuple[str, ...]] | None:
    """Devices of one resource by container, for containers that request some; None when there are not enough.

    An init container shares the devices of the containers after it, as it ends before they start. Sidecars keep
    theirs.
    """
    allocated: dict[str, tuple[str, ...]] = {}
    temporary = {each.name for each in pod.spec.init_containers if not each.is_sidecar}
    start, most = 0, 0
    for container in [*pod.spec.init_containers, *pod.spec.containers]:
        end = start + wanted_of(container, resource)
        allocated[container.name] = tuple(pool[start:end])
        most = max(most, end)
        start = start if container.name in temporary else end
    return {name: ids for name, ids in allocated.items() if ids} if most <= len(pool) else None


def devices_unavailable(pod: Pod, resource: str, available: int) -> PodFailure:
    """The rejection of a pod that requests more devices than are free, worded like the kubelet's device manager."""
    requested = pod_requests(pod).get(resource, 0) // 1000
    message = (
        f"Allocate failed due to requested number of devices unavailable for {resource}. "
        f"Requested: {requested}, Available: {available}, which is unexpected"
    )
    return PodFailure(reason="UnexpectedAdmissionError", message=message)


def vgpu_unavailable(error: ValueError) -> PodFailure:
    """The rejection of a pod whose share does not fit on its vGPU."""
    return PodFailure(reason=f"OutOf{NVIDIA_GPU}", message=f"Pod was rejected: {error}")


def _allocation_failed(why: str) -> PodFailure:
    return PodFailure(reason="UnexpectedAdmissionError", message=f"Allocate failed due to {why}")


class NodeAllocations:
    """The resources and devices allocated to the node's pods. `offered` are the node's devices by resource.

    `shared` are resources that may be overcommitted. `gpu_memory` is that of each GPU in bytes, 0 for unknown. A vGPU
    takes one GPU from those that pods can hold whole.
    """

    def __init__(
        self, allocatable: Resources, shared: Collection[str], offered: DeviceIds, gpu_memory: int = 0
    ) -> None:
        self._allocatable = allocatable
        self._shared = shared
        self._offered = offered
        self._requests: dict[str, Resources] = {}
        self._devices: dict[str, frozenset[tuple[str, str]]] = {}
        self.vgpus = NodeVgpus(gpu_memory)

    def allocate(
        self, uid: str, needed: Resources, given: Mapping[str, DeviceIds], part: VgpuPart | None = None
    ) -> None:
        """Record an allocation, also of a pod that was admitted before a restart. `given` is by container."""
        if part is not None:
            self.vgpus.add(uid, part)
        self._requests[uid] = needed
        self._devices[uid] = frozenset(
            (resource, identity)
            for by_resource in given.values()
            for resource, ids in by_resource.items()
            for identity in ids
        )

    def is_allocated(self, uid: str) -> bool:
        return uid in self._requests

    def release(self, uid: str) -> None:
        self._requests.pop(uid, None)
        self._devices.pop(uid, None)
        self.vgpus.remove(uid)

    def admit(self, pod: Pod, wished: Sequence[str]) -> dict[str, dict[str, tuple[str, ...]]] | PodFailure:
        """Allocate: the devices by container and resource, or why the pod is rejected.

        `wished` are NVIDIA GPUs that the pod requests by name.
        """
        self.release(pod.metadata.uid)  # The pod is admitted again if its checkpoint could not be written.
        needed, share = _requests_and_share(pod)
        verdict = rejection(needed, self._used(), self._allocatable, self._shared)
        if verdict:
            return verdict
        part = None if share is None else self._part(pod, share)
        if isinstance(part, PodFailure):
            return part
        resources = [name for name in self._offered if part is None or name != NVIDIA_GPU]
        allocated = self._whole_devices(pod, resources, [] if part else wished)
        if isinstance(allocated, PodFailure):
            return allocated
        if part:
            for container in pod.spec.all_containers:
                allocated.setdefault(container.name, {})[NVIDIA_GPU] = (part.device,)
        self.allocate(pod.metadata.uid, needed, allocated, part)
        return allocated

    def _part(self, pod: Pod, share: GpuShare) -> VgpuPart | PodFailure:
        try:
            number = chosen_vgpu(pod.metadata.annotations)
        except ValueError as error:
            return _allocation_failed(str(error))
        try:
            return self.vgpus.part(str(pod.metadata.key), share, number, self._free(NVIDIA_GPU))
        except ValueError as error:
            return vgpu_unavailable(error)

    def _whole_devices(
        self, pod: Pod, resources: Sequence[str], wished: Sequence[str]
    ) -> dict[str, dict[str, tuple[str, ...]]] | PodFailure:
        """The devices of these resources that the pod's containers hold alone."""
        if unknown := [identity for identity in wished if identity not in self._offered.get(NVIDIA_GPU, ())]:
            return _allocation_failed(f"{', '.join(unknown)}: no such device on this node")
        vgpus = {device: number for number, device in self.vgpus.devices.items()}
        if divided := [f"{identity}, which is vGPU {vgpus[identity]}" for identity in wished if identity in vgpus]:
            return _allocation_failed(f"{', '.join(divided)}: shared by other pods")
        allocated: dict[str, dict[str, tuple[str, ...]]] = {}
        for resource in resources:
            pool = list(wished) if wished and resource == NVIDIA_GPU else self._free(resource)
            by_container = assign_devices(pod, resource, pool)
            if by_container is None:
                return devices_unavailable(pod, resource, len(pool))
            for container, ids in by_container.items():
                allocated.setdefault(container, {})[resource] = ids
        return allocated

    def _free(self, resource: str) -> list[str]:
        taken = frozenset().union(*self._devices.values())
        return [identity for identity in self._offered.get(resource, ()) if (resource, identity) not in taken]

    def _used(self) -> Resources:
        return add_resources([*self._requests.values(), {NVIDIA_GPU: 1000 * len(self.vgpus.devices)}])
