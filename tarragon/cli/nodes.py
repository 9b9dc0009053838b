"""`--node name=a,cpu=8,memory=16Gi,nvidia.com/gpu=4`: a node as somebody wants it to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import click

from tarragon.base.quantity import milli
from tarragon.base.resources import CPU, MEMORY, PODS

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
    amounts = {resource: _amount(resource, value) for resource, value in facts.items() if resource != "name"}
    missing = [resource for resource in (CPU, MEMORY) if resource not in amounts]
    if missing:
        raise click.BadParameter(f"{text!r} does not say how much {' and '.join(missing)} the node has")
    return WantedNode(facts["name"], {PODS: MOST_PODS * 1000, **amounts})


def _amount(resource: str, value: str) -> int:
    try:
        amount = milli(value)
    except ValueError as error:
        raise click.BadParameter(f"{resource}: {error}") from error
    if amount < 0:
        raise click.BadParameter(f"{resource}: must be 0 or more, not {value}")
    return amount
