"""Whether a pod fits on the node, beside those that are there; a kubelet refuses one that does not. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tarragon.base.quantity import text
from tarragon.base.resources import NVIDIA_GPU, Resources, total
from tarragon.kube import core
from tarragon.kube.codec import decode, encode
from tarragon.localcluster.fit import wanted
from tarragon.localcluster.kubelet.base.spec import Pod
from tarragon.localcluster.kubelet.devices.devices import Given
from tarragon.localcluster.kubelet.devices.devices import wanted as wanted_of
from tarragon.localcluster.kubelet.pod.status import Verdict


def requests(pod: Pod) -> dict[str, int]:
    """What the pod needs at once, in thousandths."""
    return wanted(decode(encode(pod), core.Pod))


def refusal(needed: Resources, used: Resources, allocatable: Resources, shared: Collection[str]) -> Verdict | None:
    """`shared` are resources whose requests are shares: they are never short."""
    for name, amount in sorted(needed.items()):
        free = allocatable.get(name, 0) - used.get(name, 0)
        if amount > 0 and amount > free and name not in shared:
            message = (
                f"Pod was rejected: Node didn't have enough resource: {name}, requested: {text(amount)}, "
                f"used: {text(used.get(name, 0))}, capacity: {text(allocatable.get(name, 0))}"
            )
            return Verdict(reason=f"OutOf{name}", message=message)
    return None


def devices(pod: Pod, resource: str, pool: Sequence[str]) -> Mapping[str, tuple[str, ...]] | None:
    """Those of one resource for each container that asks for some; None when there are not enough.

    Init containers use those of whoever comes after them: they are through before these start. Sidecars go on.
    """
    given: dict[str, tuple[str, ...]] = {}
    passing = {each.name for each in pod.spec.init_containers if not each.is_sidecar}
    place, most = 0, 0
    for container in [*pod.spec.init_containers, *pod.spec.containers]:
        end = place + wanted_of(container, resource)
        given[container.name] = tuple(pool[place:end])
        most = max(most, end)
        place = place if container.name in passing else end
    return {name: ids for name, ids in given.items() if ids} if most <= len(pool) else None


def unavailable(pod: Pod, resource: str, available: int) -> Verdict:
    """In the words of a device manager."""
    needed = requests(pod).get(resource, 0) // 1000
    message = (
        f"Allocate failed due to requested number of devices unavailable for {resource}. "
        f"Requested: {needed}, Available: {available}, which is unexpected"
    )
    return Verdict(reason="UnexpectedAdmissionError", message=message)


class Ledger:
    """What the pods on the node have been promised. `offered` are the node's devices by resource."""

    def __init__(self, allocatable: Resources, shared: Collection[str], offered: Given) -> None:
        self._allocatable = allocatable
        self._shared = shared
        self._offered = offered
        self._promised: dict[str, Resources] = {}
        self._devices: dict[str, frozenset[tuple[str, str]]] = {}

    def promise(self, uid: str, needed: Resources, given: Mapping[str, Given]) -> None:
        """Also of a pod that was admitted before the kubelet was restarted. `given` is by container."""
        self._promised[uid] = needed
        self._devices[uid] = frozenset(
            (resource, identity)
            for by_resource in given.values()
            for resource, ids in by_resource.items()
            for identity in ids
        )

    def release(self, uid: str) -> None:
        self._promised.pop(uid, None)
        self._devices.pop(uid, None)

    def admit(self, pod: Pod, wished: Sequence[str]) -> dict[str, dict[str, tuple[str, ...]]] | Verdict:
        """The devices of each container by resource, or why the pod can't be taken. GPUs of NVIDIA may be wished."""
        uid, needed = pod.metadata.uid, requests(pod)
        verdict = refusal(needed, self._used(), self._allocatable, self._shared)
        if verdict:
            return verdict
        if unknown := [identity for identity in wished if identity not in self._offered.get(NVIDIA_GPU, ())]:
            words = f"Allocate failed due to {', '.join(unknown)}: no such device on this node"
            return Verdict(reason="UnexpectedAdmissionError", message=words)
        given: dict[str, dict[str, tuple[str, ...]]] = {}
        for resource in self._offered:
            pool = list(wished) if wished and resource == NVIDIA_GPU else self._free(resource)
            found = devices(pod, resource, pool)
            if found is None:
                return unavailable(pod, resource, len(pool))
            for container, ids in found.items():
                given.setdefault(container, {})[resource] = ids
        self.promise(uid, needed, given)
        return given

    def _free(self, resource: str) -> list[str]:
        taken = frozenset().union(*self._devices.values())
        return [identity for identity in self._offered[resource] if (resource, identity) not in taken]

    def _used(self) -> Resources:
        return total(self._promised.values())
