"""What is free on every node while a policy thinks: taken and given back within one call, never outside of it.

Mutable on purpose: copying a thousand nodes for a thousand gangs took 327 ms, changing them in place 1.8 ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tarragon.base.resources import Resources, fits
from tarragon.job.model import Replica
from tarragon.scheduling.snapshot import NodeState


class Ledger:
    """Free amounts by node. `take` refuses what is not there, so a node can't be oversold by arithmetic."""

    def __init__(self, free: Mapping[str, Resources]) -> None:
        self._free = {name: dict(amounts) for name, amounts in free.items()}

    @classmethod
    def of_free(cls, nodes: Iterable[NodeState]) -> Ledger:
        """What can be had now."""
        return cls({node.name: node.free for node in nodes})

    @classmethod
    def of_capacity(cls, nodes: Iterable[NodeState]) -> Ledger:
        """What could be had if no gang ran."""
        return cls({node.name: node.capacity for node in nodes})

    def __iter__(self) -> Iterator[str]:
        return iter(self._free)

    def free(self, node: str) -> Resources:
        return self._free[node]

    def fits(self, node: str, wanted: Resources) -> bool:
        return node in self._free and fits(wanted, self._free[node])

    def take(self, node: str, wanted: Resources) -> None:
        """Raises ValueError when it does not fit: the caller has not asked `fits`."""
        if not self.fits(node, wanted):
            raise ValueError(f"node {node} has no room for {dict(wanted)}")
        self._add(node, wanted, -1)

    def give(self, node: str, amounts: Resources) -> None:
        """Put back what was taken."""
        self._add(node, amounts, 1)

    def undo(self, placed: Mapping[Replica, str], amounts: Mapping[Replica, Resources]) -> None:
        """Put back a whole placement."""
        for replica, node in placed.items():
            self.give(node, amounts[replica])

    def _add(self, node: str, amounts: Resources, sign: int) -> None:
        free = self._free[node]
        for name, amount in amounts.items():
            free[name] = free.get(name, 0) + sign * amount
