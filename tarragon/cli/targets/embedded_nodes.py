"""The nodes of the embedded cluster: this machine, or those that `--node name=a,cpu=8,memory=16Gi` describes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from tarragon.base.errors import TarragonError
from tarragon.base.quantity import milli
from tarragon.base.resources import CPU, MEMORY, NVIDIA_GPU, PODS

if TYPE_CHECKING:
    from tarragon.localcluster.home.home import Home
    from tarragon.localcluster.kubelet.node.node import Gpus, NodeSettings

THIS_MACHINE = "local"
"""The name of the node that is there when none is described."""
MOST_PODS = 500
LABEL = "label:"
"""How a fact about a node begins that is a label of it."""


@dataclass(frozen=True, slots=True)
class WantedNode:
    """`capacity` in thousandths, as `base.resources` has it."""

    name: str
    capacity: Mapping[str, int]
    labels: Mapping[str, str] = field(default_factory=dict)


def node(text: str) -> WantedNode:
    """Raises BadParameter with what to write instead."""
    facts: dict[str, str] = {}
    for part in text.split(","):
        name, sign, value = part.partition("=")
        if not sign or not name.strip() or not value.strip():
            raise click.BadParameter(f"{part!r} is not NAME=VALUE; write for example name=a,cpu=8,memory=16Gi")
        facts[name.strip()] = value.strip()
    if "name" not in facts:
        raise click.BadParameter(f"{text!r} names no node; write for example name=a,cpu=8,memory=16Gi")
    labels = {fact.removeprefix(LABEL): value for fact, value in facts.items() if fact.startswith(LABEL)}
    _refuse_unlawful(labels)
    amounts = {
        resource: amount(resource, value)
        for resource, value in facts.items()
        if resource != "name" and not resource.startswith(LABEL)
    }
    missing = [resource for resource in (CPU, MEMORY) if resource not in amounts]
    if missing:
        raise click.BadParameter(f"{text!r} does not say how much {' and '.join(missing)} the node has")
    return WantedNode(facts["name"], {PODS: MOST_PODS * 1000, **amounts}, labels)


def _refuse_unlawful(labels: Mapping[str, str]) -> None:
    """A node with such a label would never be there, and nobody would be told but the log."""
    from tarragon.kube.selectors import refuse_label

    for name, value in labels.items():
        try:
            refuse_label(name, value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error


def settings_of(wanted: Sequence[WantedNode], place: Home) -> Sequence[NodeSettings]:
    """Those that were described are strict; this machine as a whole counts requests for CPUs as shares.

    Raises TarragonError when they have more GPUs together than the machine, or a name twice.
    """
    from tarragon.localcluster.kubelet.node.node import NodeSettings, gpus_of_this_machine, this_machine

    gpus = gpus_of_this_machine(os.environ)
    twice = [name for name, times in Counter(node.name for node in wanted).items() if times > 1]
    if twice:
        raise TarragonError(f"two nodes are called {twice[0]}", remedy="give each --node a name of its own")
    if wanted:
        given = _gpus(wanted, gpus, place)
        return [
            NodeSettings(
                name=node.name,
                folder=place.nodes / node.name,
                capacity=node.capacity,
                gpus=given[node.name],
                pretended=_pretended(node, gpus),
                labels={**gpus.labels(given[node.name]), **node.labels},
                images=place.images,
                has_lease=True,
            )
            for node in wanted
        ]
    machine = NodeSettings(
        name=THIS_MACHINE,
        folder=place.nodes / THIS_MACHINE,
        capacity=this_machine(gpus.allowed),
        shared=frozenset({CPU}),
        gpus=gpus.allowed,
        labels=gpus.labels(gpus.allowed),
        images=place.images,
        has_lease=True,
    )
    return [machine]


def _gpus(wanted: Sequence[WantedNode], gpus: Gpus, place: Home) -> Mapping[str, tuple[str, ...]]:
    """The machine's, each for one node; where it has none at all, by number, for trying things out."""
    from tarragon.localcluster.kubelet.devices.devices import shared_out
    from tarragon.localcluster.kubelet.pod.records import devices_held

    asked = {node.name: node.capacity.get(NVIDIA_GPU, 0) // 1000 for node in wanted}
    if not gpus.models:
        return {name: tuple(map(str, range(number))) for name, number in asked.items()}
    held = {
        folder.name: devices_held(folder, NVIDIA_GPU) for folder in sorted(place.nodes.glob("[!_]*")) if folder.is_dir()
    }
    try:
        return shared_out(asked, gpus.allowed, held)
    except ValueError as error:
        raise TarragonError(
            f"the nodes can't have so many GPUs: {error}",
            why="two nodes never hand out the same device",
            remedy=f"ask for fewer {NVIDIA_GPU}, or let CUDA_VISIBLE_DEVICES allow more of the machine's",
        ) from error


def _pretended(node: WantedNode, gpus: Gpus) -> frozenset[str]:
    """What no vendor's tool is asked about is taken on trust."""
    return frozenset({NVIDIA_GPU} if node.capacity.get(NVIDIA_GPU) and not gpus.models else ())


def amount(resource: str, value: str) -> int:
    """In thousandths. Raises BadParameter."""
    try:
        thousandths = milli(value)
    except ValueError as error:
        raise click.BadParameter(f"{resource}: {error}") from error
    if thousandths < 0:
        raise click.BadParameter(f"{resource}: must be 0 or more, not {value}")
    return thousandths
