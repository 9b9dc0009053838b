"""Whether a pod fits on the node, beside those that are there; a kubelet refuses one that does not. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tarragon.base.quantity import text
from tarragon.base.resources import NVIDIA_GPU, Resources, total
from tarragon.kube import core
from tarragon.kube.codec import decode, encode
from tarragon.localcluster.fit import wanted
from tarragon.localcluster.kubelet.environment import gpus_wanted
from tarragon.localcluster.kubelet.spec import Pod
from tarragon.localcluster.kubelet.status import Verdict


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


def devices(pod: Pod, free: Sequence[str], wished: Sequence[str] = ()) -> Mapping[str, tuple[str, ...]] | None:
    """GPUs for each container that asks for some, the wished ones if any; None when there are not enough.

    Init containers use those of the others: they are through before these start.
    """
    pool = list(wished) or list(free)
    given: dict[str, tuple[str, ...]] = {}
    lasting = [each for each in pod.spec.init_containers if each.is_sidecar] + pod.spec.containers
    place = 0
    for container in lasting:
        count = gpus_wanted(container)
        given[container.name] = tuple(pool[place : place + count])
        place += count
    passing = [each for each in pod.spec.init_containers if not each.is_sidecar]
    for container in passing:
        given[container.name] = tuple(pool[: gpus_wanted(container)])
    if max([place, *map(gpus_wanted, passing)]) > len(pool):
        return None
    return {name: ids for name, ids in given.items() if ids}


def unavailable(pod: Pod, available: int) -> Verdict:
    """In the words of a device manager."""
    needed = sum(map(gpus_wanted, pod.spec.containers))
    message = (
        f"Allocate failed due to requested number of devices unavailable for {NVIDIA_GPU}. "
        f"Requested: {needed}, Available: {available}, which is unexpected"
    )
    return Verdict(reason="UnexpectedAdmissionError", message=message)


class Ledger:
    """What the pods on the node have been promised."""

    def __init__(self, allocatable: Resources, shared: Collection[str], gpus: Sequence[str]) -> None:
        self._allocatable = allocatable
        self._shared = shared
        self._gpus = gpus
        self._promised: dict[str, Resources] = {}
        self._devices: dict[str, frozenset[str]] = {}

    def promise(self, uid: str, needed: Resources, gpus: Mapping[str, Sequence[str]]) -> None:
        """Also of a pod that was admitted before the kubelet was restarted."""
        self._promised[uid] = needed
        self._devices[uid] = frozenset(identity for ids in gpus.values() for identity in ids)

    def release(self, uid: str) -> None:
        self._promised.pop(uid, None)
        self._devices.pop(uid, None)

    def admit(self, pod: Pod, wished: Sequence[str]) -> Mapping[str, tuple[str, ...]] | Verdict:
        """The GPUs of each container, or why the pod cannot be taken."""
        uid, needed = pod.metadata.uid, requests(pod)
        verdict = refusal(needed, self._used(), self._allocatable, self._shared)
        if verdict:
            return verdict
        if unknown := [identity for identity in wished if identity not in self._gpus]:
            words = f"Allocate failed due to {', '.join(unknown)}: no such device on this node"
            return Verdict(reason="UnexpectedAdmissionError", message=words)
        taken = frozenset().union(*self._devices.values())
        free = [identity for identity in self._gpus if identity not in taken]
        gpus = devices(pod, free, wished)
        if gpus is None:
            return unavailable(pod, len(wished or free))
        self.promise(uid, needed, gpus)
        return gpus

    def _used(self) -> Resources:
        return total(self._promised.values())
