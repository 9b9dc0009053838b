"""Writes into a pod which GPUs HAMi may give it, and how much of them, where HAMi shares the GPUs of its node.

HAMi's scheduler binds such a pod. Its annotation leaves one choice only, which is the operator's.
"""

from __future__ import annotations

from collections.abc import Mapping

from tarragon.base.resources import NVIDIA_GPU, WHOLE_GPU
from tarragon.kube.meta import Json, JsonObject
from tarragon.kube.pod_validation import main_container
from tarragon.kube.scheduling.gpu_shares import (
    GPU_CORES,
    GPU_MEMORY,
    GPU_MEMORY_PERCENTAGE,
    GPU_UUID_ANNOTATION,
    GpuShare,
    share_of_template,
)
from tarragon.kube.scheduling.hami import (
    AVOID_UUID_ANNOTATION,
    HAMI_POD_PREFIXES,
    HAMI_SCHEDULER,
    USE_UUID_ANNOTATION,
)
from tarragon.plan.objects.vgpus import ChosenGpus, requests_share, with_vgpu, without_gpu_resources

_PERCENT = 100
_MIB = 2**20
_ALL = str(_PERCENT)


def with_hami_gpus(pod: JsonObject, number: int | None, gpus: ChosenGpus, main: str) -> JsonObject:
    """Return the pod with these GPUs: a share of one if it has a vGPU, else all of each.

    `main` is the name of the container that gets the share, unless another one asks for it by HAMi's resources.
    """
    found = _with_whole_gpus(pod) if number is None else _with_share(pod, number, gpus, main)
    uuids = ",".join(gpus.uuids)
    users = {
        name: value
        for name, value in (found["metadata"].get("annotations") or {}).items()
        if name != AVOID_UUID_ANNOTATION and not name.startswith(HAMI_POD_PREFIXES)
    }
    annotations = {**users, GPU_UUID_ANNOTATION: uuids, USE_UUID_ANNOTATION: uuids}
    return {
        **found,
        "metadata": {**found["metadata"], "annotations": annotations},
        "spec": {**found["spec"], "schedulerName": HAMI_SCHEDULER},
    }


def hami_share(share: GpuShare, gpu_memory: int) -> Mapping[str, str]:
    """Return HAMi's resources of a share of a GPU with so much memory, in bytes; 0 if that is not known.

    To HAMi, `gpucores` is what is guaranteed and the most that a pod may use, in one number. It is the request here:
    limits may add up to more than a GPU, and HAMi would bind none of the pods beyond that. Amounts are rounded down, so
    that what fits in thousandths and bytes fits in percent and MiB. HAMi takes 0 percent for no limit at all.
    """
    percent = max(1, share.request * _PERCENT // WHOLE_GPU)
    memory = gpu_memory * share.request // WHOLE_GPU if share.memory is None else share.memory
    part = {GPU_MEMORY: str(max(1, memory // _MIB))} if memory else {GPU_MEMORY_PERCENTAGE: str(percent)}
    return {NVIDIA_GPU: "1", GPU_CORES: str(percent), **part}


def _with_share(pod: JsonObject, number: int, gpus: ChosenGpus, main: str) -> JsonObject:
    share, spec = share_of_template(pod), pod["spec"]
    default = main_container(pod, main) or {}
    name = next((each.get("name") for each in spec["containers"] if requests_share(each)), default.get("name"))
    numbered = with_vgpu(pod, number)
    if share is None:
        return numbered
    resources = hami_share(share, gpus.memory)
    containers = [
        _with_limits(container, resources) if container.get("name") == name else container
        for container in map(without_gpu_resources, numbered["spec"]["containers"])
    ]
    return {**numbered, "spec": {**numbered["spec"], "containers": containers}}


def _with_whole_gpus(pod: JsonObject) -> JsonObject:
    """Return the pod with all of each GPU. HAMi may be told to give less to pods that do not say how much they want."""
    spec = pod["spec"]
    containers = {
        kind: [_with_all(container) for container in spec[kind]]
        for kind in ("initContainers", "containers")
        if spec.get(kind)
    }
    return {**pod, "spec": {**spec, **containers}}


def _with_all(container: JsonObject) -> JsonObject:
    resources = container.get("resources") or {}
    number = (resources.get("limits") or {}).get(NVIDIA_GPU, (resources.get("requests") or {}).get(NVIDIA_GPU))
    if number is None or str(number) == "0":
        return container
    everything = {NVIDIA_GPU: number, GPU_CORES: _ALL, GPU_MEMORY_PERCENTAGE: _ALL}
    return _with_limits(without_gpu_resources(container), everything)


def _with_limits(container: JsonObject, limits: Mapping[str, Json]) -> JsonObject:
    resources = container.get("resources") or {}
    return {**container, "resources": {**resources, "limits": {**(resources.get("limits") or {}), **limits}}}
