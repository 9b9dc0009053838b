"""Admits pods on a node: rejects a pod that does not fit beside the others, and allocates devices. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tarragon.base.quantity import format_milli
from tarragon.base.resources import NVIDIA_GPU, Resources, add_resources
from tarragon.kube import core
from tarragon.kube.codec import decode, encode
from tarragon.kube.scheduling.pod_requests import resource_request
from tarragon.localcluster.kubelet.base.spec import Pod
from tarragon.localcluster.kubelet.devices.devices import DeviceIds
from tarragon.localcluster.kubelet.devices.devices import requested_devices as wanted_of
from tarragon.localcluster.kubelet.pod.status import PodFailure


def pod_requests(pod: Pod) -> Resources:
    """The pod's resource requests, in thousandths."""
    return resource_request(decode(encode(pod.spec), core.PodSpec))


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


class NodeAllocations:
    """The resources and devices allocated to the node's pods. `offered` are the node's devices by resource."""

    def __init__(self, allocatable: Resources, shared: Collection[str], offered: DeviceIds) -> None:
        self._allocatable = allocatable
        self._shared = shared
        self._offered = offered
        self._requests: dict[str, Resources] = {}
        self._devices: dict[str, frozenset[tuple[str, str]]] = {}

    def allocate(self, uid: str, needed: Resources, given: Mapping[str, DeviceIds]) -> None:
        """Record an allocation, also of a pod that was admitted before a restart. `given` is by container."""
        self._requests[uid] = needed
        self._devices[uid] = frozenset(
            (resource, identity)
            for by_resource in given.values()
            for resource, ids in by_resource.items()
            for identity in ids
        )

    def release(self, uid: str) -> None:
        self._requests.pop(uid, None)
        self._devices.pop(uid, None)

    def admit(self, pod: Pod, wished: Sequence[str]) -> dict[str, dict[str, tuple[str, ...]]] | PodFailure:
        """Allocate: the devices by container and resource, or why the pod is rejected.

        `wished` are NVIDIA GPUs that the pod requests by name.
        """
        uid, needed = pod.metadata.uid, pod_requests(pod)
        verdict = rejection(needed, self._used(), self._allocatable, self._shared)
        if verdict:
            return verdict
        if unknown := [identity for identity in wished if identity not in self._offered.get(NVIDIA_GPU, ())]:
            message = f"Allocate failed due to {', '.join(unknown)}: no such device on this node"
            return PodFailure(reason="UnexpectedAdmissionError", message=message)
        allocated: dict[str, dict[str, tuple[str, ...]]] = {}
        for resource in self._offered:
            pool = list(wished) if wished and resource == NVIDIA_GPU else self._free(resource)
            by_container = assign_devices(pod, resource, pool)
            if by_container is None:
                return devices_unavailable(pod, resource, len(pool))
            for container, ids in by_container.items():
                allocated.setdefault(container, {})[resource] = ids
        self.allocate(uid, needed, allocated)
        return allocated

    def _free(self, resource: str) -> list[str]:
        taken = frozenset().union(*self._devices.values())
        return [identity for identity in self._offered[resource] if (resource, identity) not in taken]

    def _used(self) -> Resources:
        return add_resources(self._requests.values())
