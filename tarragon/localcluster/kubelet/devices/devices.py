"""Accelerators of the vendors that we know: by which variables a program is told which of them it may use. Pure.

No container runtime stands between a process and the devices of its machine, so the variables that a vendor's own
libraries read decide. Of other vendors only the amounts count.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from tarragon.base.quantity import milli
from tarragon.base.resources import NVIDIA_GPU, Resources
from tarragon.localcluster.kubelet.base.spec import Container

Given = Mapping[str, tuple[str, ...]]
"""Devices by resource, as `nvidia.com/gpu`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    """`none` is what hides all devices; empty where nothing does."""

    variables: tuple[str, ...]
    none: str = ""
    beside: Mapping[str, str] = field(default_factory=dict)
    """What is said along with a choice."""


PRETENDS = " (this machine has none: the number is pretended)"
AMD_GPU = "amd.com/gpu"
_CUDA = "CUDA_VISIBLE_DEVICES"

VENDORS: Mapping[str, Vendor] = MappingProxyType(
    {
        # CUDA's own; the second is what NVIDIA's device plugin sets for the container runtime.
        NVIDIA_GPU: Vendor(
            variables=(_CUDA, "NVIDIA_VISIBLE_DEVICES"), none="-1", beside={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        ),
        # rocm.docs.amd.com, GPU isolation techniques: the lowest layer, which all others count from.
        AMD_GPU: Vendor(variables=("ROCR_VISIBLE_DEVICES",), none="-1"),
        # oneapi-src.github.io/level-zero-spec, environment variables.
        "gpu.intel.com/i915": Vendor(variables=("ZE_AFFINITY_MASK",)),
        "gpu.intel.com/xe": Vendor(variables=("ZE_AFFINITY_MASK",)),
        # docs.habana.ai, multiple workloads on one machine.
        "habana.ai/gaudi": Vendor(variables=("HABANA_VISIBLE_MODULES",)),
        # libtpu; the second is its older name.
        "google.com/tpu": Vendor(variables=("TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES")),
        # awsdocs-neuron, runtime configuration.
        "aws.amazon.com/neuroncore": Vendor(variables=("NEURON_RT_VISIBLE_CORES",)),
    }
)


def wanted(container: Container, resource: str) -> int:
    """How many whole devices it asks for."""
    resources = container.resources
    return milli(resources.limits.get(resource, resources.requests.get(resource, 0))) // 1000


def offered(capacity: Resources, gpus: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The devices of a node: NVIDIA's by what they are called, those of others by number."""
    numbered = {name: tuple(map(str, range(capacity.get(name, 0) // 1000))) for name in VENDORS}
    return {name: ids for name, ids in {**numbered, NVIDIA_GPU: tuple(gpus)}.items() if ids}


def variables(given: Given, there: Collection[str]) -> dict[str, str]:
    """Who has none sees none: TensorFlow takes all that it sees. `there` are the resources of the node.

    AMD's libraries heed CUDA's variable, too: to whom AMD's devices are given, nothing is said of NVIDIA's.
    """
    found: dict[str, str] = {} if given.get(AMD_GPU) else {_CUDA: "-1"}
    for resource, vendor in VENDORS.items():
        ids = given.get(resource, ())
        if ids:
            found |= {**dict.fromkeys(vendor.variables, ",".join(ids)), **vendor.beside}
        elif resource in there and vendor.none and resource != NVIDIA_GPU:
            found |= dict.fromkeys(vendor.variables, vendor.none)
    return found


def told(given: Mapping[str, Given], pretended: Collection[str]) -> str:
    """By container, for people: `main has nvidia.com/gpu 0,1`."""
    return "; ".join(
        f"container {container} has {resource} {','.join(ids)}{PRETENDS if resource in pretended else ''}"
        for container, by_resource in given.items()
        for resource, ids in by_resource.items()
    )


def shared_out(
    asked: Mapping[str, int], real: Sequence[str], held: Mapping[str, Sequence[str]]
) -> Mapping[str, tuple[str, ...]]:
    """The machine's devices for each node that asks for some: first what its pods have, then what nobody has.

    Raises ValueError when there are not enough.
    """
    if sum(asked.values()) > len(real):
        raise ValueError(f"they ask for {sum(asked.values())} devices in all, and the machine has {len(real)}")
    mine = {node: [each for each in held.get(node, ()) if each in real][:number] for node, number in asked.items()}
    taken = {each for ids in held.values() for each in ids}
    # What pods of nodes that are no more still have, comes last: it takes a moment until they have ended.
    free = sorted(
        (each for each in real if not any(each in ids for ids in mine.values())),
        key=lambda each: (each in taken, real.index(each)),
    )
    for node, number in asked.items():
        missing = number - len(mine[node])
        mine[node] += free[:missing]
        free = free[missing:]
    return {node: tuple(sorted(ids, key=real.index)) for node, ids in mine.items()}
