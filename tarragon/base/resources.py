"""Amounts of several resources at once, such as what a pod asks for and what a node has.

A vector is a plain mapping from resource name to thousandths (`base.quantity.milli`); a missing name is zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Resources = Mapping[str, int]

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"
NVIDIA_GPU = "nvidia.com/gpu"


def total(vectors: Iterable[Resources]) -> dict[str, int]:
    """The sum, name by name."""
    result: dict[str, int] = {}
    for vector in vectors:
        for name, amount in vector.items():
            result[name] = result.get(name, 0) + amount
    return result


def minus(have: Resources, used: Resources) -> dict[str, int]:
    """`have` less `used`; may go below zero where somebody else oversold."""
    return {name: have.get(name, 0) - used.get(name, 0) for name in have.keys() | used.keys()}


def largest(left: Resources, right: Resources) -> dict[str, int]:
    """The greater of the two, name by name: what containers that run one after the other need."""
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in left.keys() | right.keys()}


def fits(wanted: Resources, free: Resources) -> bool:
    """Whether everything that is wanted is free. Nothing is short of a resource that nobody asks for."""
    return all(amount <= 0 or amount <= free.get(name, 0) for name, amount in wanted.items())


def shortage(wanted: Resources, free: Resources) -> dict[str, int]:
    """How much of each resource is missing, without those that suffice."""
    lacking = {name: amount - max(0, free.get(name, 0)) for name, amount in wanted.items() if amount > 0}
    return {name: amount for name, amount in lacking.items() if amount > 0}
