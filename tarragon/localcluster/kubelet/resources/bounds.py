"""How much a pod may use of what is only watched, not held back: memory, and the space that goes with the pod. Pure.

A kubelet looks at the space now and then and evicts the pod that has too much; so does this one, in the same words.
Memory is held back by the kernel on a cluster; processes of this machine are only told of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tarragon.base.quantity import milli
from tarragon.localcluster.kubelet.base.spec import Pod
from tarragon.localcluster.kubelet.pod.status import Verdict

EVICTED = "Evicted"
STORAGE = "ephemeral-storage"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Bytes, and how the manifest spells them: by container, by volume, and for the whole pod."""

    memory: Mapping[str, str] = field(default_factory=dict)
    storage: Mapping[str, str] = field(default_factory=dict)
    empty_dirs: Mapping[str, str] = field(default_factory=dict)
    is_whole_pod_bounded: bool = False

    def __bool__(self) -> bool:
        return bool(self.memory or self.storage or self.empty_dirs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """Bytes: `memory` and `logs` by container, `empty_dirs` by volume, `rest` is what else lies in the pod's folder."""

    memory: Mapping[str, int] = field(default_factory=dict)
    logs: Mapping[str, int] = field(default_factory=dict)
    empty_dirs: Mapping[str, int] = field(default_factory=dict)
    rest: int = 0

    @property
    def storage(self) -> int:
        return sum(self.logs.values()) + sum(self.empty_dirs.values()) + self.rest


def bounds(pod: Pod) -> Bounds:
    """The whole pod is bounded when each of its main containers is, as a kubelet has it."""
    limits = {each.name: each.resources.limits for each in pod.spec.all_containers}
    mains = [each.name for each in pod.spec.containers]
    storage = {name: str(said[STORAGE]) for name, said in limits.items() if STORAGE in said}
    return Bounds(
        memory={name: str(said["memory"]) for name, said in limits.items() if "memory" in said},
        storage=storage,
        empty_dirs=dict(_sized(pod)),
        is_whole_pod_bounded=all(name in storage for name in mains),
    )


def _sized(pod: Pod) -> Iterator[tuple[str, str]]:
    for volume in pod.spec.volumes:
        source = volume.get("emptyDir") or {}
        if source.get("sizeLimit"):
            yield volume["name"], str(source["sizeLimit"])


def eviction(pod: Pod, allowed: Bounds, used: Used) -> Verdict | None:
    """Why the pod must go, in a kubelet's order and words; None when nothing is too much."""
    for name, size in used.empty_dirs.items():
        if _is_over(size, allowed.empty_dirs.get(name)):
            return Verdict(
                reason=EVICTED,
                message=f'Usage of EmptyDir volume "{name}" exceeds the limit "{allowed.empty_dirs[name]}". ',
            )
    mains = [allowed.storage[each.name] for each in pod.spec.containers if each.name in allowed.storage]
    whole = sum(milli(said) for said in mains)
    if mains and allowed.is_whole_pod_bounded and used.storage * 1000 > whole:
        told = mains[0] if len(mains) == 1 else str(whole // 1000)
        words = f"Pod ephemeral local storage usage exceeds the total limit of containers {told}. "
        return Verdict(reason=EVICTED, message=words)
    for name, size in used.logs.items():
        if _is_over(size, allowed.storage.get(name)):
            words = f'Container {name} exceeded its local ephemeral storage limit "{allowed.storage[name]}". '
            return Verdict(reason=EVICTED, message=words)
    return None


def too_much_memory(allowed: Bounds, used: Used) -> dict[str, str]:
    """Words about each container that uses more than its limit, by name."""
    return {
        name: f"Container {name} uses {_mebibytes(size)}, more than its limit of {allowed.memory[name]}: a cluster "
        "would kill it (OOMKilled, exit code 137); nothing holds it back on this machine"
        for name, size in used.memory.items()
        if _is_over(size, allowed.memory.get(name))
    }


def _is_over(size: int, allowed: str | None) -> bool:
    return allowed is not None and size * 1000 > milli(allowed)


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:.0f}Mi"
