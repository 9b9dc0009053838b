"""The nodes of the embedded cluster: this machine, or those that `--node name=a,cpu=8,memory=16Gi` describes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from tarragon.base.quantity import milli
from tarragon.base.resources import CPU, MEMORY, NVIDIA_GPU, PODS

if TYPE_CHECKING:
    from tarragon.localcluster.home import Home
    from tarragon.localcluster.kubelet.node import NodeSettings

THIS_MACHINE = "local"
"""The name of the node that is there when none is described."""
MOST_PODS = 500


@dataclass(frozen=True, slots=True)
class WantedNode:
    """`capacity` in thousandths, as `base.resources` has it."""

    name: str
    capacity: Mapping[str, int]


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
    amounts = {resource: amount(resource, value) for resource, value in facts.items() if resource != "name"}
    missing = [resource for resource in (CPU, MEMORY) if resource not in amounts]
    if missing:
        raise click.BadParameter(f"{text!r} does not say how much {' and '.join(missing)} the node has")
    return WantedNode(facts["name"], {PODS: MOST_PODS * 1000, **amounts})


def settings_of(wanted: Sequence[WantedNode], place: Home) -> Sequence[NodeSettings]:
    """Those that were described are strict; this machine as a whole counts requests for CPUs as shares."""
    from tarragon.localcluster.kubelet.node import NodeSettings, gpus_of_this_machine, this_machine

    gpus = gpus_of_this_machine(os.environ)
    if wanted:
        return [
            NodeSettings(
                name=node.name,
                folder=place.nodes / node.name,
                capacity=node.capacity,
                gpus=_devices(node, gpus),
                images=place.images,
                has_lease=True,
            )
            for node in wanted
        ]
    machine = NodeSettings(
        name=THIS_MACHINE,
        folder=place.nodes / THIS_MACHINE,
        capacity=this_machine(gpus),
        shared=frozenset({CPU}),
        gpus=gpus,
        images=place.images,
        has_lease=True,
    )
    return [machine]


def _devices(node: WantedNode, gpus: Sequence[str]) -> tuple[str, ...]:
    """As many as the node is said to have; where this machine has fewer, by number, for trying things out."""
    number = node.capacity.get(NVIDIA_GPU, 0) // 1000
    return tuple(gpus[:number]) if number <= len(gpus) else tuple(map(str, range(number)))


def amount(resource: str, value: str) -> int:
    """In thousandths. Raises BadParameter."""
    try:
        thousandths = milli(value)
    except ValueError as error:
        raise click.BadParameter(f"{resource}: {error}") from error
    if thousandths < 0:
        raise click.BadParameter(f"{resource}: must be 0 or more, not {value}")
    return thousandths
