"""The allocations of running gangs, kept from cycle to cycle: few gangs change, and there may be thousands of pieces.

A piece is what one gang holds on one node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tarragon.scheduling.api.snapshot import RunningGang, is_equal_but_for_work
from tarragon.scheduling.state.node_requests import Amounts

GangAllocation = tuple[Amounts, Amounts]
"""The rows on which one gang holds something, and the amounts, by column."""


class AllocationCache:
    """The pieces of the last cycle's running gangs. Arrays are replaced, never changed in place."""

    def __init__(self, columns: int) -> None:
        self._slots: dict[str, tuple[RunningGang, int]] = {}
        """By name, the gang and its slot. Slots are reused."""
        self._free_slots: list[int] = []
        self._owners = np.zeros(0, np.int64)
        """The slot of each piece's gang."""
        self._rows = np.zeros(0, np.int64)
        self._amounts = np.zeros((0, columns), np.int64)

    def allocations_of(
        self, gangs: Sequence[RunningGang], compute: Callable[[RunningGang], GangAllocation]
    ) -> tuple[Amounts, GangAllocation]:
        """Return for each piece the index of its gang in `gangs`, its row and its amounts."""
        known = self._slots
        changed = [gang for gang in gangs if (entry := known.get(gang.name)) is None or entry[0] is not gang]
        new = [gang for gang in changed if not self._is_known(gang)]
        if new or len(gangs) < len(known):
            self._forget((known.keys() - {gang.name for gang in gangs}) | (known.keys() & {gang.name for gang in new}))
            self._add(new, compute)
        indexes = np.zeros(len(known) + len(self._free_slots), np.int64)
        indexes[[known[gang.name][1] for gang in gangs]] = np.arange(len(gangs))
        return indexes[self._owners], (self._rows, self._amounts)

    def _is_known(self, gang: RunningGang) -> bool:
        """Whether the gang holds what it held before. The newest object is kept: the next look-up finds it faster."""
        before, slot = self._slots.get(gang.name, (None, 0))
        if before is None or not is_equal_but_for_work(before, gang):
            return False
        self._slots[gang.name] = gang, slot
        return True

    def _forget(self, names: set[str]) -> None:
        if names:
            slots = [self._slots.pop(name)[1] for name in sorted(names)]
            self._free_slots += slots
            is_kept = np.ones(len(self._slots) + len(self._free_slots), np.bool_)
            is_kept[slots] = False
            keep = is_kept[self._owners]
            self._owners, self._rows, self._amounts = self._owners[keep], self._rows[keep], self._amounts[keep]

    def _add(self, gangs: Sequence[RunningGang], compute: Callable[[RunningGang], GangAllocation]) -> None:
        if not gangs:
            return
        allocations, slots = [], list[int]()
        for gang in gangs:
            slot = self._free_slots.pop() if self._free_slots else len(self._slots)
            self._slots[gang.name] = gang, slot
            allocations.append(compute(gang))
            slots.append(slot)
        self._owners = np.concatenate([self._owners, np.repeat(slots, [len(rows) for rows, _ in allocations])])
        self._rows = np.concatenate([self._rows, *(rows for rows, _ in allocations)])
        self._amounts = np.concatenate([self._amounts, *(amounts for _, amounts in allocations)])
