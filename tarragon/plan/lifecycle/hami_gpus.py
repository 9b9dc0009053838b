"""Chooses which GPUs of a node HAMi may give to a new pod, so that no two vGPUs, nor a vGPU and a whole GPU, are one.

All pods of a vGPU get its GPU. A vGPU that has none gets one that no other pod has, and so does a pod that needs GPUs
whole. What pods have follows from their annotations; what was chosen a moment ago is added by the caller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tarragon.job.places import describe_place
from tarragon.kube.scheduling.hami import HamiGpu
from tarragon.plan.objects.vgpus import ChosenGpus, GpuDemand, GpuWait


@dataclass(frozen=True, slots=True)
class GpuHolder:
    """What some pod has, or is about to have, of a node's GPUs."""

    name: str
    """The place of the vGPU, or the key of a pod that has its GPUs whole: see `holder_of`."""
    gpus: frozenset[str]
    """The UUIDs."""
    is_foreign: bool = False
    """Whether HAMi has chosen the GPUs for a pod of others."""


def holder_of(demand: GpuDemand) -> str:
    """Return the name of the holder that a new pod is part of."""
    return str(demand.pod) if demand.whole else demand.place


def choose_gpus(demand: GpuDemand, gpus: Sequence[HamiGpu], holders: Iterable[GpuHolder]) -> ChosenGpus | GpuWait:
    """Return the GPUs for a new pod, or why there are none. `gpus` are those of the node without a fault.

    HAMi itself may put pods of others on the GPU of a vGPU that has room for them. Such a vGPU keeps its GPU, and HAMi
    binds as many pods there as it has room for.
    """
    name = holder_of(demand)
    every = list(holders)
    own = frozenset().union(*(each.gpus for each in every if each.name == name))
    others = frozenset().union(*(each.gpus for each in every if each.name != name))
    memory = min((gpu.memory for gpu in gpus), default=0)
    known = {gpu.uuid for gpu in gpus}
    if own and demand.whole == 0:
        of_vgpus = frozenset().union(*(each.gpus for each in every if each.name != name and not each.is_foreign))
        fault = _fault(own, known, of_vgpus)
        if fault:
            message = f"{describe_place(demand.place)} {fault}; others can start there when these have ended"
            return GpuWait(message=message, is_problem=True)
        return ChosenGpus(uuids=tuple(own), memory=memory)
    count = demand.whole or 1
    if len(own) == count and own <= known and own.isdisjoint(others):
        return ChosenGpus(uuids=tuple(sorted(own)), memory=memory)
    free = [gpu for gpu in gpus if gpu.uuid not in others]
    if len(free) < count:
        message = f"node {demand.node} has {len(free)} GPUs that no pod has, by HAMi's annotations; {count} are needed"
        return GpuWait(message=message, is_rejected=True)
    return ChosenGpus(uuids=tuple(sorted(gpu.uuid for gpu in _closest(free, count))), memory=memory)


def _fault(own: frozenset[str], known: set[str], others: frozenset[str]) -> str:
    """Return what is wrong with the GPU of a vGPU that pods use; empty if nothing is."""
    if len(own) > 1:
        return f"has pods on several GPUs, {' and '.join(sorted(own))}"
    (uuid,) = own
    if uuid in others:
        return f"has the GPU {uuid}, which pods at another place have, too"
    return "" if uuid in known else f"has lost its GPU {uuid}, which pods still use"


def _closest(free: Sequence[HamiGpu], count: int) -> Sequence[HamiGpu]:
    """Return that many GPUs, of one NUMA node if possible: of the one that has the fewest left beyond them."""
    sizes = Counter(gpu.numa for gpu in free)
    suitable = [numa for numa, size in sizes.items() if size >= count]
    if not suitable:
        return free[:count]
    best = min(suitable, key=lambda numa: (sizes[numa], numa))
    return [gpu for gpu in free if gpu.numa == best][:count]
