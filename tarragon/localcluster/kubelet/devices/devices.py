"""Accelerators of supported vendors, and the environment variables that make them visible to a program. Pure.

No container runtime limits the devices of a process, so visibility depends on the variables that the vendor's libraries
read. For other vendors, only amounts are counted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from tarragon.base.quantity import parse_milli
from tarragon.base.resources import NVIDIA_GPU, Resources
from tarragon.localcluster.kubelet.base.spec import Container

DeviceIds = Mapping[str, tuple[str, ...]]
"""Device ids by resource, such as `nvidia.com/gpu`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    """A vendor's variables for visible devices. `hide_all` is the value that hides them all, empty if there is none."""

    variables: tuple[str, ...]
    hide_all: str = ""
    extra_variables: Mapping[str, str] = field(default_factory=dict)
    """Further variables that are set along with visible devices."""


PRETENDED_NOTE = " (pretended: this machine has no such device)"
AMD_GPU = "amd.com/gpu"
_CUDA = "CUDA_VISIBLE_DEVICES"

VENDORS: Mapping[str, Vendor] = MappingProxyType(
    {
        # CUDA's own; the second is what NVIDIA's device plugin sets for the container runtime.
        NVIDIA_GPU: Vendor(
            variables=(_CUDA, "NVIDIA_VISIBLE_DEVICES"),
            hide_all="-1",
            extra_variables={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
        ),
        # rocm.docs.amd.com, GPU isolation techniques: the lowest layer, whose numbering the others use.
        AMD_GPU: Vendor(variables=("ROCR_VISIBLE_DEVICES",), hide_all="-1"),
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


def requested_devices(container: Container, resource: str) -> int:
    """The number of whole devices that the container requests."""
    resources = container.resources
    return parse_milli(resources.limits.get(resource, resources.requests.get(resource, 0))) // 1000


def node_devices(capacity: Resources, gpus: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The device ids of a node by resource: NVIDIA's as given in `gpus`, other vendors' are numbers."""
    numbered = {name: tuple(map(str, range(capacity.get(name, 0) // 1000))) for name in VENDORS}
    return {name: ids for name, ids in {**numbered, NVIDIA_GPU: tuple(gpus)}.items() if ids}


def visibility_variables(given: DeviceIds, there: Collection[str]) -> dict[str, str]:
    """The variables that show a container exactly its devices. `there` are the resources of the node.

    Without devices all are hidden, as TensorFlow uses all that it sees. AMD's libraries read CUDA's variable too, so it
    is not set for containers with AMD devices.
    """
    result: dict[str, str] = {} if given.get(AMD_GPU) else {_CUDA: "-1"}
    for resource, vendor in VENDORS.items():
        ids = given.get(resource, ())
        if ids:
            result |= {**dict.fromkeys(vendor.variables, ",".join(ids)), **vendor.extra_variables}
        elif resource in there and vendor.hide_all and resource != NVIDIA_GPU:
            result |= dict.fromkeys(vendor.variables, vendor.hide_all)
    return result


def allocation_text(given: Mapping[str, DeviceIds], pretended: Collection[str]) -> str:
    """The allocation as text: `container main has nvidia.com/gpu 0,1`."""
    return "; ".join(
        f"container {container} has {resource} {','.join(ids)}{PRETENDED_NOTE if resource in pretended else ''}"
        for container, by_resource in given.items()
        for resource, ids in by_resource.items()
    )


def divide_devices(
    asked: Mapping[str, int], real: Sequence[str], held: Mapping[str, Sequence[str]]
) -> Mapping[str, tuple[str, ...]]:
    """Divide the machine's devices among its nodes: first the devices that a node's pods hold, then free ones.

    Raises ValueError when there are not enough.
    """
    if sum(asked.values()) > len(real):
        raise ValueError(f"the nodes request {sum(asked.values())} devices in all, but the machine has {len(real)}")
    assigned = {node: [each for each in held.get(node, ()) if each in real][:number] for node, number in asked.items()}
    taken = {each for ids in held.values() for each in ids}
    # Devices still held by pods of removed nodes come last, as those pods take a moment to end.
    free = sorted(
        (each for each in real if not any(each in ids for ids in assigned.values())),
        key=lambda each: (each in taken, real.index(each)),
    )
    for node, number in asked.items():
        missing = number - len(assigned[node])
        assigned[node] += free[:missing]
        free = free[missing:]
    return {node: tuple(sorted(ids, key=real.index)) for node, ids in assigned.items()}
