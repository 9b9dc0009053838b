"""Finding nodes for a gang: on one node if one takes it whole, else on as few as it goes, the first group's first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tarragon.base.resources import CPU, MEMORY, Resources
from tarragon.job.model import Replica
from tarragon.scheduling.ledger import Ledger
from tarragon.scheduling.snapshot import Demand

Placement = dict[Replica, str]


def place(demands: Sequence[Demand], ledger: Ledger) -> Placement | None:
    """Nodes for the gang at its wish, else as large as it goes, never below its minimum; None when that does not fit.

    What is returned has been taken from the ledger; after None the ledger is as before.
    """
    needed = [(Replica(demand.type, index), demand) for demand in demands for index in range(demand.minimum)]
    wished = [
        (Replica(demand.type, index), demand) for demand in demands for index in range(demand.minimum, demand.wish)
    ]
    whole = _on_one_node(needed + wished, ledger)
    if whole is not None:
        return whole
    placed = _spread(needed, ledger)
    if placed is None:
        return None
    return placed | extend(wished, ledger, near=placed)


def extend(wished: Sequence[tuple[Replica, Demand]], ledger: Ledger, near: Mapping[Replica, str]) -> Placement:
    """Places for as many of the wished replicas as there is room for, without gaps, near the others first."""
    placed: Placement = {}
    full: set[object] = set()
    home = list(dict.fromkeys(near.values()))
    for replica, demand in wished:
        if demand.type in full:
            continue
        node = next((name for name in _preferred(home, ledger) if _takes(name, demand, ledger)), None)
        if node is None:
            full.add(demand.type)
            continue
        ledger.take(node, demand.each)
        placed[replica] = node
    return placed


def _on_one_node(wanted: Sequence[tuple[Replica, Demand]], ledger: Ledger) -> Placement | None:
    """Best fit: of the nodes that take the whole gang, the one that has least left for others."""
    candidates = [name for name in ledger if all(name in demand.eligible for _, demand in wanted)]
    for name in sorted(candidates, key=lambda name: (_room(ledger.free(name)), name)):
        placed = _fill(wanted, [name], ledger)
        if placed is not None:
            return placed
    return None


def _spread(wanted: Sequence[tuple[Replica, Demand]], ledger: Ledger) -> Placement | None:
    """The roomiest nodes first, each filled before the next is opened."""
    names = sorted(ledger, key=lambda name: (*(-amount for amount in _room(ledger.free(name))), name))
    return _fill(wanted, names, ledger)


def _fill(wanted: Sequence[tuple[Replica, Demand]], names: Sequence[str], ledger: Ledger) -> Placement | None:
    placed: Placement = {}
    for replica, demand in wanted:
        node = next((name for name in names if _takes(name, demand, ledger)), None)
        if node is None:
            amounts = {member: needs.each for member, needs in wanted}
            ledger.undo(placed, amounts)
            return None
        ledger.take(node, demand.each)
        placed[replica] = node
    return placed


def _preferred(home: Sequence[str], ledger: Ledger) -> Iterator[str]:
    yield from home
    yield from (name for name in sorted(ledger) if name not in home)


def _takes(name: str, demand: Demand, ledger: Ledger) -> bool:
    return name in demand.eligible and ledger.fits(name, demand.each)


def _room(free: Resources) -> tuple[int, int, int]:
    """Accelerators are scarcest, so they decide first; then memory, then cpu."""
    accelerators = sum(amount for name, amount in free.items() if "/" in name)
    return accelerators, free.get(MEMORY, 0), free.get(CPU, 0)
