"""Chooses how many nodes of each room to use: the fewest that suffice, with the least left over."""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt

_MAX_STEPS = 3000
"""The bound on work. Larger choices start with the roomiest nodes and optimize only the last ones."""


def min_nodes(nodes_with: Sequence[int], count: int) -> int | None:
    """The least number of nodes for `count` replicas; `nodes_with[room]` nodes take `room` replicas each. None if all
    are too few.
    """
    used = 0
    for room in range(len(nodes_with) - 1, 0, -1):
        there = nodes_with[room]
        if there * room >= count:
            return used + -(-count // room)
        used += there
        count -= there * room
    return None


def choose_rooms(nodes_with: Sequence[int], count: int, nodes: int) -> list[int]:
    """Choose the rooms of this many nodes, roomiest first, that take `count` with the least left over.

    Of equal choices, the one with the fewest very roomy nodes: a later gang may need these. `nodes` must be the result
    of `min_nodes`.
    """
    left = list(nodes_with)
    found: list[int] = []
    weighed = max(2, isqrt(2 * _MAX_STEPS // sum(1 for there in left if there)))
    while nodes - len(found) > weighed:
        room = max(room for room, there in enumerate(left) if there)
        taken = min(left[room], nodes - len(found) - weighed)
        left[room] -= taken
        found += [room] * taken
    return found + _exact(left, count - sum(found), nodes - len(found))


def _exact(nodes_with: Sequence[int], count: int, nodes: int) -> list[int]:
    """Compute the reachable sums for each number of nodes, as bits of an integer, then trace back from the roomiest."""
    rooms = [room for room in range(1, len(nodes_with)) if nodes_with[room]]
    useful = (1 << (count + rooms[-1])) - 1
    sums = [1] + [0] * nodes
    before: list[list[int]] = []
    for room in rooms:
        before.append(sums)
        sums = sums.copy()
        for taken in range(1, min(nodes_with[room], nodes) + 1):
            for others in range(nodes - taken + 1):
                sums[others + taken] |= (before[-1][others] << (room * taken)) & useful
    enough = sums[nodes] >> count
    return _trace_back(rooms, before, count + (enough & -enough).bit_length() - 1, nodes)


def _trace_back(rooms: Sequence[int], before: Sequence[Sequence[int]], total: int, nodes: int) -> list[int]:
    """Trace the rooms back, using as few roomy nodes as possible."""
    found: list[int] = []
    for room, sums in zip(reversed(rooms), reversed(before), strict=True):
        while not sums[nodes] >> total & 1:
            found.append(room)
            nodes, total = nodes - 1, total - room
    return found
