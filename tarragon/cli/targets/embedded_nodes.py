"""The nodes of the embedded cluster: this machine, or the nodes given by `--node name=a,cpu=8,memory=16Gi`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from tarragon.base.errors import TarragonError
from tarragon.base.quantity import parse_milli
from tarragon.base.resources import CPU, EPHEMERAL_STORAGE, GPU_MEMORY_LABEL, MEMORY, NVIDIA_GPU, PODS

if TYPE_CHECKING:
    from tarragon.localcluster.home.home import Home
    from tarragon.localcluster.kubelet.node.machine import MachineGpus
    from tarragon.localcluster.kubelet.node.node import NodeSettings

DEFAULT_NODE = "local"
"""The name of the default node."""
MAX_PODS = 500
GPU_MEMORY = "gpu-memory"
"""The name of the memory of each of a node's GPUs in `--node`: `nvidia.com/gpu=2,gpu-memory=16Gi`."""
LABEL_PREFIX = "label:"
"""The prefix of labels in `--node`: `label:zone=a`."""


@dataclass(frozen=True, slots=True)
class NodeFlag:
    """A node from `--node`. `capacity` is in thousandths, like everywhere in `base.resources`."""

    name: str
    capacity: Mapping[str, int]
    labels: Mapping[str, str] = field(default_factory=dict)


def parse_node(text: str) -> NodeFlag:
    """Parses the value of `--node`. Raises BadParameter."""
    facts: dict[str, str] = {}
    for part in text.split(","):
        name, sign, value = part.partition("=")
        if not sign or not name.strip() or not value.strip():
            raise click.BadParameter(f"{part!r} is not NAME=VALUE; use for example name=a,cpu=8,memory=16Gi")
        facts[name.strip()] = value.strip()
    if "name" not in facts:
        raise click.BadParameter(f"{text!r} has no name; use for example name=a,cpu=8,memory=16Gi")
    labels = {fact.removeprefix(LABEL_PREFIX): value for fact, value in facts.items() if fact.startswith(LABEL_PREFIX)}
    _validate_labels(labels)
    amounts = {
        resource: parse_amount(resource, value)
        for resource, value in facts.items()
        if resource not in {"name", GPU_MEMORY} and not resource.startswith(LABEL_PREFIX)
    }
    labels = {**gpu_memory_label(facts.get(GPU_MEMORY), amounts), **labels}
    missing = [resource for resource in (CPU, MEMORY) if resource not in amounts]
    if missing:
        raise click.BadParameter(
            f"{text!r} has no {' and no '.join(missing)}; use for example name=a,cpu=8,memory=16Gi"
        )
    return NodeFlag(facts["name"], {PODS: MAX_PODS * 1000, **amounts}, labels)


def gpu_memory_label(value: str | None, capacity: Mapping[str, int]) -> dict[str, str]:
    """Returns the node's label for GPUs with this memory each. Raises BadParameter."""
    if value is None:
        return {}
    mebibytes = parse_amount(GPU_MEMORY, value) // 1000 // 2**20
    if not mebibytes:
        raise click.BadParameter(f"{GPU_MEMORY}: must be 1Mi or more, such as 16Gi, not {value}")
    if capacity.get(NVIDIA_GPU, 0) < 1000:  # noqa: PLR2004 - one GPU
        raise click.BadParameter(
            f"{GPU_MEMORY}: the node has no GPUs; use for example {NVIDIA_GPU}=2,{GPU_MEMORY}=16Gi"
        )
    return {GPU_MEMORY_LABEL: str(mebibytes)}


def _validate_labels(labels: Mapping[str, str]) -> None:
    """Raises BadParameter for an invalid label: the node could not be created, and only the log would say so."""
    from tarragon.kube.selectors import validate_label

    for name, value in labels.items():
        try:
            validate_label(name, value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error


def node_settings(wanted: Sequence[NodeFlag], place: Home) -> Sequence[NodeSettings]:
    """Returns the settings of the wanted nodes, or of this machine as one node, whose CPU requests are only shares.

    Raises TarragonError if a name occurs twice or the nodes have more GPUs than the machine.
    """
    from tarragon.localcluster.kubelet.node.machine import detect_gpus, file_system_size, machine_capacity
    from tarragon.localcluster.kubelet.node.node import NodeSettings

    gpus = detect_gpus(os.environ)
    duplicates = [name for name, number in Counter(node.name for node in wanted).items() if number > 1]
    if duplicates:
        raise TarragonError(f"two nodes have the name {duplicates[0]}", remedy="give each --node its own name")
    if wanted:
        gpus_by_node = _gpus(wanted, gpus, place)
        return [
            NodeSettings(
                name=node.name,
                folder=place.nodes / node.name,
                capacity={EPHEMERAL_STORAGE: file_system_size(place.nodes) * 1000, **node.capacity},
                gpus=gpus_by_node[node.name],
                pretended=_pretended(node, gpus),
                labels={**gpus.labels(gpus_by_node[node.name]), **node.labels},
                images=place.images,
                renews_lease=True,
            )
            for node in wanted
        ]
    machine = NodeSettings(
        name=DEFAULT_NODE,
        folder=place.nodes / DEFAULT_NODE,
        capacity=machine_capacity(place.nodes, gpus.allowed),
        overcommitted=frozenset({CPU}),
        gpus=gpus.allowed,
        labels=gpus.labels(gpus.allowed),
        images=place.images,
        renews_lease=True,
    )
    return [machine]


def _gpus(wanted: Sequence[NodeFlag], gpus: MachineGpus, place: Home) -> Mapping[str, tuple[str, ...]]:
    """Assigns each of the machine's GPUs to one node. A machine without GPUs pretends to have numbered ones."""
    from tarragon.localcluster.kubelet.devices.devices import divide_devices
    from tarragon.localcluster.kubelet.pod.records import allocated_devices

    requested = {node.name: node.capacity.get(NVIDIA_GPU, 0) // 1000 for node in wanted}
    if not gpus.models:
        return {name: tuple(map(str, range(number))) for name, number in requested.items()}
    held = {
        folder.name: allocated_devices(folder, NVIDIA_GPU)
        for folder in sorted(place.nodes.glob("[!_]*"))
        if folder.is_dir()
    }
    try:
        return divide_devices(requested, gpus.allowed, held)
    except ValueError as error:
        raise TarragonError(
            f"not enough GPUs for the nodes: {error}",
            why="a device belongs to one node only",
            remedy=f"give the nodes fewer {NVIDIA_GPU}, or allow more devices with CUDA_VISIBLE_DEVICES",
        ) from error


def _pretended(node: NodeFlag, gpus: MachineGpus) -> frozenset[str]:
    """The resources that the node only pretends to have: GPUs on a machine without any."""
    return frozenset({NVIDIA_GPU} if node.capacity.get(NVIDIA_GPU) and not gpus.models else ())


def parse_amount(resource: str, value: str) -> int:
    """Parses a quantity into thousandths. Raises BadParameter."""
    try:
        thousandths = parse_milli(value)
    except ValueError as error:
        raise click.BadParameter(f"{resource}: {error}") from error
    if thousandths < 0:
        raise click.BadParameter(f"{resource}: must be 0 or more, not {value}")
    return thousandths
