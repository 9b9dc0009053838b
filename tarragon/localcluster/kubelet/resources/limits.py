"""The memory and storage limits of a pod, which are monitored but not enforced by the kernel. Pure.

A pod that exceeds its ephemeral storage is evicted, with the kubelet's messages. On a cluster, the kernel enforces
memory limits; here, a container that exceeds its limit is only reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tarragon.base.quantity import parse_milli
from tarragon.base.resources import EPHEMERAL_STORAGE
from tarragon.localcluster.kubelet.base.spec import Pod
from tarragon.localcluster.kubelet.pod.status import PodFailure

EVICTED = "Evicted"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLimits:
    """A pod's limits as the manifest writes them. `memory` and `storage` are by container, `empty_dirs` by volume."""

    memory: Mapping[str, str] = field(default_factory=dict)
    storage: Mapping[str, str] = field(default_factory=dict)
    empty_dirs: Mapping[str, str] = field(default_factory=dict)
    limits_whole_pod: bool = False

    def __bool__(self) -> bool:
        return bool(self.memory or self.storage or self.empty_dirs)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedResources:
    """A pod's usage in bytes: `memory` and `logs` by container, `empty_dirs` by volume, `rest` for the work folder."""

    memory: Mapping[str, int] = field(default_factory=dict)
    logs: Mapping[str, int] = field(default_factory=dict)
    empty_dirs: Mapping[str, int] = field(default_factory=dict)
    rest: int = 0

    @property
    def storage(self) -> int:
        return sum(self.logs.values()) + sum(self.empty_dirs.values()) + self.rest


def pod_limits(pod: Pod) -> PodLimits:
    """The pod's limits. The pod as a whole is limited when each main container is, as in the kubelet."""
    limits = {each.name: each.resources.limits for each in pod.spec.all_containers}
    mains = [each.name for each in pod.spec.containers]
    storage = {name: str(limit[EPHEMERAL_STORAGE]) for name, limit in limits.items() if EPHEMERAL_STORAGE in limit}
    return PodLimits(
        memory={name: str(limit["memory"]) for name, limit in limits.items() if "memory" in limit},
        storage=storage,
        empty_dirs=dict(_size_limits(pod)),
        limits_whole_pod=all(name in storage for name in mains),
    )


def _size_limits(pod: Pod) -> Iterator[tuple[str, str]]:
    for volume in pod.spec.volumes:
        source = volume.get("emptyDir") or {}
        if source.get("sizeLimit"):
            yield volume["name"], str(source["sizeLimit"])


def eviction(pod: Pod, allowed: PodLimits, used: UsedResources) -> PodFailure | None:
    """Why the pod is evicted, in the kubelet's order and words; None when no limit is exceeded."""
    for name, size in used.empty_dirs.items():
        if _is_over(size, allowed.empty_dirs.get(name)):
            return PodFailure(
                reason=EVICTED,
                message=f'Usage of EmptyDir volume "{name}" exceeds the limit "{allowed.empty_dirs[name]}". ',
            )
    mains = [allowed.storage[each.name] for each in pod.spec.containers if each.name in allowed.storage]
    total = sum(parse_milli(limit) for limit in mains)
    if mains and allowed.limits_whole_pod and used.storage * 1000 > total:
        limit = mains[0] if len(mains) == 1 else str(total // 1000)
        message = f"Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "
        return PodFailure(reason=EVICTED, message=message)
    for name, size in used.logs.items():
        if _is_over(size, allowed.storage.get(name)):
            message = f'Container {name} exceeded its local ephemeral storage limit "{allowed.storage[name]}". '
            return PodFailure(reason=EVICTED, message=message)
    return None


def memory_warnings(allowed: PodLimits, used: UsedResources) -> dict[str, str]:
    """A message for each container that uses more memory than its limit, by name."""
    return {
        name: f"Container {name} uses {_mebibytes(size)}, more than its limit of {allowed.memory[name]}: a cluster "
        "would kill it (OOMKilled, exit code 137), but this machine does not enforce the limit"
        for name, size in used.memory.items()
        if _is_over(size, allowed.memory.get(name))
    }


def _is_over(size: int, allowed: str | None) -> bool:
    return allowed is not None and size * 1000 > parse_milli(allowed)


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:.0f}Mi"
