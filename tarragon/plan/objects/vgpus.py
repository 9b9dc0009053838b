"""Writes into a pod which vGPU it shares, and how much of it.

The kubelet of a process node reads the number. Where anchors hold the GPUs, the pod names the GPU itself, by its UUID,
in a variable that NVIDIA's container runtime reads. Where HAMi shares them, see `hami_pods`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

from tarragon.base.resources import NVIDIA_GPU, WHOLE_GPU
from tarragon.job.places import node_of, vgpu_of
from tarragon.kube.codec import decode, encode
from tarragon.kube.core import PodSpec
from tarragon.kube.meta import Json, JsonObject, Key
from tarragon.kube.scheduling.gpu_limits import memory_variables, mps_variables, without_those_of_user
from tarragon.kube.scheduling.gpu_shares import (
    GPU_UUID_ANNOTATION,
    SHARE_RESOURCES,
    VGPU_ANNOTATION,
    GpuShare,
    share_of_template,
)
from tarragon.kube.scheduling.pod_requests import scheduling_request

VISIBLE_DEVICES, CAPABILITIES = "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"
MPS_VOLUME = "tarragon-mps"
_RESOURCES = ("limits", "requests")


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedGpu:
    """A GPU that an anchor pod holds for those that share it."""

    uuid: str
    memory: int = 0
    """Bytes; 0 if that is not known."""
    mps_pipes: str = ""
    """The pipe directory of the MPS daemon on its node; empty without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenGpus:
    """The only GPUs that HAMi may give to a pod."""

    uuids: tuple[str, ...]
    memory: int = 0
    """Bytes of each GPU; 0 if that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuDemand:
    """What a new pod needs of the GPUs of its place."""

    pod: Key
    place: str
    whole: int = 0
    """The number of GPUs that it needs whole; 0 for one that shares the GPU of its place, which then is a vGPU."""

    @property
    def node(self) -> str:
        return node_of(self.place)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuWait:
    """Why no pod can have its GPUs at a place yet."""

    message: str
    is_problem: bool = False
    """Whether this is more than the time in which an anchor starts."""
    is_rejected: bool = False
    """Whether the node has rejected the anchor, or has no GPU left."""


GpuLookup = Callable[[GpuDemand], SharedGpu | ChosenGpus | GpuWait | None]
"""Returns the GPUs of a new pod; None if the kubelet of its node finds them itself."""
GpuShortage = Callable[[Key, str, GpuShare], str]
"""Returns what the GPU of a place lacks for the pod with this key and share; empty if nothing, or if the kubelet would
refuse the pod.
"""


def gpu_demand(pod: Key, place: str, spec: JsonObject) -> GpuDemand | None:
    """Return what a pod with this spec needs of the GPUs of the place; None if it needs none."""
    if vgpu_of(place) is not None:
        return GpuDemand(pod=pod, place=place)
    whole = whole_gpus(spec)
    return GpuDemand(pod=pod, place=place, whole=whole) if whole else None


def whole_gpus(spec: JsonObject) -> int:
    """Return the number of GPUs that a pod with this spec requests. Few specs mention one; the others cost nothing."""
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    if not any(NVIDIA_GPU in (_amounts(container, kind)) for container in containers for kind in _RESOURCES):
        return 0
    return _whole_gpus(encode({name: spec[name] for name in ("initContainers", "containers") if name in spec}))


@lru_cache(maxsize=1024)  # the replicas of a job have one template
def _whole_gpus(containers: bytes) -> int:
    return scheduling_request(decode(containers, PodSpec)).get(NVIDIA_GPU, 0) // 1000


def no_gpu_shortage(_: Key, __: str, ___: GpuShare) -> str:
    """Return what GPUs lack of which kubelets look after all."""
    return ""


def with_vgpu(pod: JsonObject, number: int, gpu: SharedGpu | None = None) -> JsonObject:
    """Return the pod with the number of its vGPU, and with what it needs to use the GPU if an anchor holds it.

    HAMi's resources, which no node offers without HAMi, become the annotations of KubeShare with the same meaning.
    """
    numbered = _with_number(pod, number)
    return numbered if gpu is None else _with_gpu(numbered, gpu)


def _with_number(pod: JsonObject, number: int) -> JsonObject:
    share = share_of_template(pod)
    metadata, spec = pod["metadata"], pod["spec"]
    annotations = {**metadata.get("annotations", {}), VGPU_ANNOTATION: str(number)}
    if share is not None and any(requests_share(container) for container in spec["containers"]):
        annotations |= _kubeshare_annotations(share)
        spec = {**spec, "containers": [without_gpu_resources(container) for container in spec["containers"]]}
    return {**pod, "metadata": {**metadata, "annotations": annotations}, "spec": spec}


def _with_gpu(pod: JsonObject, gpu: SharedGpu) -> JsonObject:
    metadata, spec, share = pod["metadata"], pod["spec"], share_of_template(pod)
    limits = {} if share is None else _limits(share, gpu)
    defaults = {CAPABILITIES: "compute,utility", **limits}
    containers = {
        kind: [_with_variables(container, gpu.uuid, defaults) for container in spec[kind]]
        for kind in ("initContainers", "containers")
        if spec.get(kind)
    }
    spec = {**spec, **containers}
    return {
        **pod,
        "metadata": {**metadata, "annotations": {**metadata["annotations"], GPU_UUID_ANNOTATION: gpu.uuid}},
        "spec": _with_mps(spec, gpu.mps_pipes) if gpu.mps_pipes else spec,
    }


def _limits(share: GpuShare, gpu: SharedGpu) -> Mapping[str, str]:
    memory = gpu.memory * share.request // WHOLE_GPU if share.memory is None else share.memory
    return {**memory_variables(memory, gpu.memory), **mps_variables(share.limit, memory, gpu.mps_pipes)}


def _with_variables(container: JsonObject, uuid: str, defaults: Mapping[str, str]) -> JsonObject:
    """Return the container with the defaults, unless the user has set them, and with the GPU in any case."""
    users = [variable for variable in container.get("env") or [] if variable.get("name") != VISIBLE_DEVICES]
    set_by_user = {variable.get("name", ""): "" for variable in users}
    ours = {VISIBLE_DEVICES: uuid, **without_those_of_user(defaults, set_by_user)}
    return {**container, "env": [*({"name": name, "value": value} for name, value in ours.items()), *users]}


def _with_mps(spec: JsonObject, pipes: str) -> JsonObject:
    """Return the pod spec with the pipe directory of the MPS daemon, where no volume of the user is mounted there."""
    volume = {"name": MPS_VOLUME, "hostPath": {"path": pipes, "type": "Directory"}}
    containers = {
        kind: [_with_mount(container, {"name": MPS_VOLUME, "mountPath": pipes}) for container in spec[kind]]
        for kind in ("initContainers", "containers")
        if spec.get(kind)
    }
    return {**spec, **containers, "volumes": [*(spec.get("volumes") or []), volume]}


def _with_mount(container: JsonObject, mount: JsonObject) -> JsonObject:
    mounts = container.get("volumeMounts") or []
    is_taken = any(each.get("mountPath") == mount["mountPath"] for each in mounts)
    return container if is_taken else {**container, "volumeMounts": [*mounts, mount]}


def _kubeshare_annotations(share: GpuShare) -> Mapping[str, str]:
    parts = {"gpu_request": _decimal(share.request), "gpu_limit": _decimal(share.limit)}
    memory = {} if share.memory is None else {"gpu_mem": str(share.memory)}
    return {f"kubeshare/{name}": value for name, value in {**parts, **memory}.items()}


def _decimal(thousandths: int) -> str:
    return str(Decimal(thousandths) / WHOLE_GPU)


def requests_share(container: JsonObject) -> bool:
    """Whether the container has resources of HAMi."""
    return any(not SHARE_RESOURCES.isdisjoint(_amounts(container, kind)) for kind in _RESOURCES)


def _amounts(container: JsonObject, kind: str) -> JsonObject:
    found: JsonObject = (container.get("resources") or {}).get(kind) or {}
    return found


def without_gpu_resources(container: JsonObject) -> JsonObject:
    """Return the container without GPUs and without HAMi's resources."""
    resources: JsonObject = container.get("resources") or {}
    kept: dict[str, Json] = {
        kind: {name: amount for name, amount in found.items() if name != NVIDIA_GPU and name not in SHARE_RESOURCES}
        if kind in _RESOURCES and found
        else found
        for kind, found in resources.items()
    }
    return {**container, "resources": kept}
