"""Places gangs on as few nodes as possible."""

from __future__ import annotations

from collections.abc import Mapping

from tarragon.simulator.engine import Placement


def packed(replicas: int, free: Mapping[str, int], devices: int = 1) -> Placement | None:
    """Return a placement on the fullest node that has room for all, else on the emptiest nodes; None if there is no
    room. Each replica takes so many devices.
    """
    if devices > 1:
        free = {name: count // devices for name, count in free.items()}
    if sum(free.values()) < replicas:
        return None
    placement: dict[str, int] = {}
    left = replicas
    emptiest_first = iter(sorted(free, key=lambda name: (-free[name], name)))
    while left:
        fitting = [(count, name) for name, count in free.items() if count >= left and name not in placement]
        node = min(fitting)[1] if fitting else next(emptiest_first)
        placement[node] = min(left, free[node])
        left -= placement[node]
    return placement


def take(free: dict[str, int], placement: Placement, devices: int = 1) -> None:
    for node, count in placement.items():
        free[node] -= count * devices


def give_back(free: dict[str, int], placement: Placement, devices: int = 1) -> None:
    for node, count in placement.items():
        free[node] += count * devices
