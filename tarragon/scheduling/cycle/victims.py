"""Selects the gangs that have to end so that another one can start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tarragon.scheduling.api.snapshot import Demand, RunningGang
from tarragon.scheduling.cycle.preemption_simulation import Holdings, Trial
from tarragon.scheduling.placement.fit import could_fit
from tarragon.scheduling.state.inventory import Inventory
from tarragon.scheduling.state.ledger import Ledger
from tarragon.scheduling.state.memory import ClusterMemory
from tarragon.scheduling.state.node_requests import Amounts


def holders(gangs: Sequence[RunningGang], nodes: Inventory, memory: ClusterMemory) -> Holdings:
    """What running gangs hold, by index."""
    owners, (rows, amounts) = memory.allocations.of(gangs, nodes.held)
    return Holdings(len(gangs), owners, rows, amounts)


def has_as_much(demands: Sequence[Demand], ledger: Ledger) -> bool:
    """Whether each demand by itself has room for its minimum: a quick, necessary condition."""
    return all(ledger.has_as_many(demand, demand.minimum) for demand in demands)


@dataclass(frozen=True, slots=True)
class Ends:
    """The victims by index, and the ledger as it would be after they have ended."""

    several: Sequence[int]
    ledger: Ledger


def fewest(demands: Sequence[Demand], order: Amounts, held: Holdings, ledger: Ledger) -> Ends | None:
    """Select victims: the shortest prefix of the order that suffices, minus those in it that are not needed.

    None if the demands would not fit even if all had ended. Of those that are not needed, the last ones are left out
    first.
    """

    def suffice(owners: Sequence[int] | Amounts) -> bool:
        return could_fit(demands, held.without(owners, ledger))

    simulation = Trial(demands, ledger, held)
    least = simulation.beginning(order)
    if least is None:
        return None
    prefix = order[:least]
    needed = simulation.needed(prefix)
    after = held.without(needed, ledger)
    if could_fit(demands, after):
        return Ends(needed, after)
    # The simulation checks each demand by itself; together they may not fit.
    if not suffice(order):
        return None
    needed = _minimal(order[: shortest(order, least, suffice)].tolist(), suffice)
    return Ends(needed, held.without(needed, ledger))


def shortest(order: Amounts, least: int, suffice: Callable[[Amounts], bool]) -> int:
    """Find by bisection the shortest prefix, of at least this length, that suffices. The whole order does."""
    too_few, enough = least - 1, len(order)
    while enough - too_few > 1:
        middle = (enough + too_few) // 2
        if suffice(order[:middle]):
            enough = middle
        else:
            too_few = middle
    return enough


def _minimal(needed: list[int], suffice: Callable[[Sequence[int]], bool]) -> list[int]:
    """Leave out what is not needed, in whole parts first: usually few of many are needed."""
    parts = [needed]
    while parts:
        part = parts.pop()
        left_out = set(part)
        others = [number for number in needed if number not in left_out]
        if suffice(others):
            needed = others
        elif len(part) > 1:
            half = len(part) // 2
            parts += [part[:half], part[half:]]
    return needed
