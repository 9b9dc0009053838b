"""What a pod with a share of a GPU takes from its node, as amounts of resources.

A vGPU is a shared GPU of a node. Its share and its memory are resources of their own, of which the vGPU has 1,000
thousandths and the memory of the GPU.
"""

from __future__ import annotations

import re

from tarragon.base.resources import NVIDIA_GPU, WHOLE_GPU, Resources, vgpu_memory, vgpu_memory_part, vgpu_share
from tarragon.kube.core import Pod
from tarragon.kube.scheduling.gpu_shares import SHARE_RESOURCES, VGPU_ANNOTATION, GpuShare, share_of_pod
from tarragon.kube.scheduling.pod_requests import scheduling_request

_VGPUS = f"{NVIDIA_GPU}/"
_SHARE = re.compile(rf"{re.escape(NVIDIA_GPU)}/\d+")


def pod_vgpu(pod: Pod) -> int | None:
    """Return the number of the vGPU of which a pod has a share; None if it has none."""
    number = pod.metadata.annotations.get(VGPU_ANNOTATION, "")
    return int(number) if number.isascii() and number.isdecimal() and len(number) < len("10000") else None


def pod_request(pod: Pod) -> Resources:
    """Return what a pod takes from its node: `scheduling_request`, with its part of a vGPU if it has a share."""
    request = without_hami(scheduling_request(pod.spec, pod.status))
    return request_at_vgpu(request, share_of_pod(pod), pod_vgpu(pod))


def request_at_vgpu(request: Resources, share: GpuShare | None, number: int | None) -> Resources:
    """Return the request with the share of this vGPU instead of GPUs; unchanged without a share or a vGPU."""
    return request if share is None or number is None else {**without_gpus(request), **vgpu_request(share, number)}


def fractional_request(request: Resources, share: GpuShare) -> Resources:
    """Return the request with the share as a fraction of a GPU, as quotas count it."""
    return {**without_gpus(request), NVIDIA_GPU: share.request}


def vgpu_request(share: GpuShare, number: int) -> Resources:
    """Return what a share takes of a vGPU. A share without memory takes a part of the GPU's."""
    memory = (
        {vgpu_memory_part(number): share.request * 1000}
        if share.memory is None
        else {vgpu_memory(number): share.memory * 1000}
    )
    return {vgpu_share(number): share.request * 1000, **memory, **share.constraints.marks(number, share.request)}


def with_memory_parts(amounts: Resources, gpu_memory: int) -> Resources:
    """Replace parts of the memory of vGPUs by amounts, for a node whose GPUs have so much each, in thousandths."""
    result = dict(amounts)
    for name in amounts:
        number = name.removeprefix(_VGPUS).removesuffix("/memory-part")
        if number.isdecimal() and name == vgpu_memory_part(int(number)):
            part = result.pop(name)
            memory = vgpu_memory(int(number))
            result[memory] = result.get(memory, 0) + gpu_memory * part // (WHOLE_GPU * 1000)
    return result


def with_whole_gpus(amounts: Resources, capacity: Resources, held: Resources) -> Resources:
    """Replace amounts of vGPUs that are not in the capacity by whole GPUs, where all that is `held` of one is there.

    Such vGPUs are in use, although their node does not share its GPUs any more, or has fewer of them.
    """
    lost = {name for name in amounts if name.startswith(_VGPUS) and name not in capacity}
    if not lost:
        return amounts
    kept = {name: amount for name, amount in amounts.items() if name not in lost}
    gpus = sum(_SHARE.fullmatch(name) is not None and amounts[name] >= held.get(name, 0) > 0 for name in lost)
    return {**kept, NVIDIA_GPU: kept.get(NVIDIA_GPU, 0) + gpus * 1000} if gpus else kept


def without_hami(request: Resources) -> Resources:
    """Return the request without the resources that only HAMi's scheduler counts: no node offers them."""
    if SHARE_RESOURCES.isdisjoint(request):
        return request
    return {name: amount for name, amount in request.items() if name not in SHARE_RESOURCES}


def without_gpus(request: Resources) -> Resources:
    """Return the request without GPUs: whole ones, vGPUs, and HAMi's resources, which stand for a share."""
    return {
        name: amount
        for name, amount in request.items()
        if name != NVIDIA_GPU and not name.startswith(_VGPUS) and name not in SHARE_RESOURCES
    }
