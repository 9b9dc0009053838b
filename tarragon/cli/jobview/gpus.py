"""Counts and describes the accelerators of a job, a pod or a node, whatever resource name their device plugin uses.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from tarragon.base.quantity import format_bytes, format_decimal
from tarragon.base.resources import WHOLE_GPU
from tarragon.cli.jobview.jobs import ClusterJob
from tarragon.job.model import ReplicaType
from tarragon.kube.core import Pod
from tarragon.kube.scheduling.gpu_shares import GPU_UUID_ANNOTATION, GpuShare, share_of_pod
from tarragon.kube.scheduling.vgpu_requests import pod_request, pod_vgpu
from tarragon.plan.nodes.replica_requests import group_request

_WORDS = ("gpu", "tpu", "npu", "mig-", "accelerator")
_SHORT_UUID = len("GPU-01234567")


def accelerators(amounts: Mapping[str, int]) -> int:
    """Returns the number of accelerators in thousandths, as `amounts` are."""
    return sum(amount for name, amount in amounts.items() if is_accelerator(name))


def is_accelerator(resource: str) -> bool:
    """Whether the resource is an accelerator: `nvidia.com/gpu`, `google.com/tpu`, `nvidia.com/mig-1g.5gb`.

    Kubernetes' own resources (`cpu`) have no slash in their names.
    """
    _, slash, name = resource.rpartition("/")
    return bool(slash) and any(word in name for word in _WORDS)


def accelerators_of_job(job: ClusterJob, size: Mapping[ReplicaType, int]) -> int:
    """Returns the accelerators of a job whose replicas number `size`, when all of them run, in thousandths."""
    groups = job.job.replica_specs if job.job is not None else ()
    return sum(size.get(group.type, 0) * accelerators(group_request(group)) for group in groups)


def count_of_gpus(thousandths: int, noun: str = "GPU") -> str:
    """Formats a number of GPUs in a sentence: `1 GPU`, `0.5 GPUs`."""
    return f"{format_decimal(thousandths)} {noun}{'' if thousandths == WHOLE_GPU else 's'}"


def json_number(thousandths: int) -> int | float:
    """Returns a number of GPUs for JSON, where it was always a whole number before GPUs could be shared."""
    return thousandths / 1000 if thousandths % 1000 else thousandths // 1000


def gpus_of_pod(pod: Pod, gpu_memory: int) -> str:
    """Describes what a pod has of GPUs: `0.5 of vGPU 0 (GPU-1f2b3c4d…, 2.97Gi)`, `2 GPUs`; empty if it has none.

    `gpu_memory` is that of each GPU of its node in bytes, 0 if it is not known.
    """
    share = share_of_pod(pod)
    if share is None:
        whole = accelerators(pod_request(pod))
        return count_of_gpus(whole) if whole else ""
    details = ", ".join(filter(None, (_short_id(pod), _memory(share, gpu_memory))))
    return part_of_gpu(pod) + (f" ({details})" if details else "")


def part_of_gpu(pod: Pod) -> str:
    """Describes the part of a GPU that a pod has: `0.5 of vGPU 0`; empty if it shares none."""
    share, number = share_of_pod(pod), pod_vgpu(pod)
    if share is None:
        return ""
    return f"{format_decimal(share.request)} of {'a GPU' if number is None else f'vGPU {number}'}"


def _short_id(pod: Pod) -> str:
    """Shortens the UUID of the pod's GPU. The embedded cluster numbers GPUs that it pretends to have."""
    found = pod.metadata.annotations.get(GPU_UUID_ANNOTATION, "")
    if found.isdecimal():
        return f"GPU {found}"
    return found if len(found) <= _SHORT_UUID else f"{found[:_SHORT_UUID]}…"


def _memory(share: GpuShare, gpu_memory: int) -> str:
    memory = gpu_memory * share.request // WHOLE_GPU if share.memory is None else share.memory
    return format_bytes(memory * 1000) if memory else ""
