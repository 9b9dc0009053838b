"""The GPUs of nodes that HAMi shares, by the annotations of HAMi and of the pods that have them.

HAMi's device plugin offers each GPU several times as `nvidia.com/gpu`, and lists the GPUs in an annotation of the node.
HAMi's scheduler chooses among them for each pod, and writes its choice into the pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from msgspec import DecodeError, ValidationError

from tarragon.kube.codec import decode
from tarragon.kube.core import Node
from tarragon.kube.meta import Json
from tarragon.kube.scheduling.gpu_shares import GPU_UUID_ANNOTATION, gpu_memory
from tarragon.kube.scheduling.node_gpu_sharing import HAMI_ANNOTATION, GpuSharing, gpu_sharing, is_gpu_uuid

HAMI_SCHEDULER = "hami-scheduler"
"""The name that HAMi's chart gives its scheduler."""
USE_UUID_ANNOTATION, AVOID_UUID_ANNOTATION = "nvidia.com/use-gpuuuid", "nvidia.com/nouse-gpuuuid"
"""The annotations of a pod with the only GPUs that HAMi may choose, and with those that it may not."""
HAMI_GPUS_ANNOTATION = "hami.io/vgpu-devices-allocated"
"""The annotation of a pod in which HAMi writes which GPUs it has chosen."""
HAMI_POD_PREFIXES = ("hami.io/vgpu-", "hami.io/bind-")
"""How the names of the annotations begin that HAMi writes on pods."""
_MIG = "mig"
_MIB = 2**20
_FIELDS, _FIELDS_WITH_MODE = 7, 9
_DIGITS = 10
"""No number in the annotation has as many: memory in MiB would be more than tables of amounts can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HamiGpu:
    """A GPU of a node, as HAMi's device plugin reports it."""

    uuid: str
    memory: int
    """Bytes; more than the GPU has, if HAMi is told to scale the memory."""
    is_healthy: bool
    numa: int = 0


def hami_gpus(node: Node) -> tuple[HamiGpu, ...]:
    """Return the GPUs that HAMi reports for the node, those without a fault only.

    GPUs in MIG mode are left out: HAMi divides them by profiles, which are no parts of any size.
    """
    return tuple(gpu for gpu in _read_gpus(node.metadata.annotations.get(HAMI_ANNOTATION, "")) if gpu.is_healthy)


def node_gpu_memory(node: Node) -> int:
    """Return the memory of each GPU of the node, in bytes: the smallest of those that HAMi shares, else the label's."""
    if gpu_sharing(node) is GpuSharing.HAMI:
        return min((gpu.memory for gpu in hami_gpus(node)), default=0)
    return gpu_memory(node.metadata.labels)


_NO_GPUS: frozenset[str] = frozenset()


def gpus_of_pod(annotations: Mapping[str, str]) -> frozenset[str]:
    """Return the UUIDs of the GPUs that a pod with these annotations has by HAMi's choice, or may have only."""
    if GPU_UUID_ANNOTATION not in annotations and HAMI_GPUS_ANNOTATION not in annotations:
        return _NO_GPUS
    ours = filter(None, annotations.get(GPU_UUID_ANNOTATION, "").split(","))
    return frozenset(ours) | _chosen_gpus(annotations.get(HAMI_GPUS_ANNOTATION, ""))


@lru_cache(maxsize=4096)
def _chosen_gpus(text: str) -> frozenset[str]:
    """Read `UUID,NVIDIA,4096,50:;`: one entry for each GPU, a semicolon after each container. MIG adds `[0-1]`."""
    entries = text.replace(";", ":").split(":")
    return frozenset(entry.split(",")[0].partition("[")[0].strip() for entry in entries if "," in entry)


@lru_cache(maxsize=4096)
def _read_gpus(text: str) -> tuple[HamiGpu, ...]:
    """Read the annotation of a node, of which there are two forms. What can't be read is no GPU."""
    found = _read_json(text) if text.startswith("[") else [_read_fields(each.split(",")) for each in text.split(":")]
    unique = {gpu.uuid: gpu for gpu in found if gpu is not None and is_gpu_uuid(gpu.uuid)}
    return tuple(unique.values())


def _read_json(text: str) -> list[HamiGpu | None]:
    try:
        entries = decode(text.encode(), list[dict[str, Json]])
    except (DecodeError, ValidationError):
        return []
    return [
        HamiGpu(
            uuid=str(entry.get("id", "")),
            memory=_whole(entry.get("devmem", 0)) * _MIB,
            is_healthy=entry.get("health") is True,
            numa=_whole(entry.get("numa", 0)),
        )
        for entry in entries
        if entry.get("mode") != _MIG
    ]


def _read_fields(fields: list[str]) -> HamiGpu | None:
    """Read `UUID,count,memory,cores,type,numa,health`, after which newer versions write `index,mode`."""
    if len(fields) not in {_FIELDS, _FIELDS_WITH_MODE} or fields[-1] == _MIG:
        return None
    uuid, _, memory, _, _, numa, health, *_ = fields
    is_healthy = health.lower() == "true"
    return HamiGpu(uuid=uuid, memory=_whole(memory) * _MIB, is_healthy=is_healthy, numa=_whole(numa))


def _whole(value: Json) -> int:
    """Return a number that is not negative; 0 for anything else, and for more than any GPU has."""
    if isinstance(value, str):
        value = int(value) if value.isascii() and value.isdecimal() and len(value) < _DIGITS else 0
    return value if isinstance(value, int) and value is not True and 0 < value < 10 ** (_DIGITS - 1) else 0
