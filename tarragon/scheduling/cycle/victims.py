"""Selects the gangs that have to end so that another one can start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tarragon.scheduling.api.snapshot import Demand, RunningGang
from tarragon.scheduling.cycle.preemption_simulation import AllocationTable, PreemptionSimulation
from tarragon.scheduling.placement.fit import is_feasible
from tarragon.scheduling.state.inventory import Inventory
from tarragon.scheduling.state.ledger import NodeLedger
from tarragon.scheduling.state.memory import ClusterMemory
from tarragon.scheduling.state.node_requests import Amounts

NODES_SEARCHED_PER_CYCLE = 5_000
"""A search for what others could give back takes 3 to 10 ms on so many nodes, most of it for looking at all of them."""


def searches_per_cycle(most: int, nodes: int) -> int:
    """Return for how many gangs one cycle takes from others: at most so many, and fewer on a cluster with thousands of
    nodes, where each search takes long. The next gangs follow in the next cycles.
    """
    return max(1, min(most, NODES_SEARCHED_PER_CYCLE // max(1, nodes)))


def allocations_of(gangs: Sequence[RunningGang], nodes: Inventory, memory: ClusterMemory) -> AllocationTable:
    """What running gangs hold, by index."""
    owners, (rows, amounts) = memory.allocations.allocations_of(gangs, nodes.allocation_of)
    return AllocationTable(len(gangs), owners, rows, amounts)


def has_room_for_each(demands: Sequence[Demand], ledger: NodeLedger) -> bool:
    """Whether each demand by itself has room for its minimum: a quick, necessary condition."""
    return all(ledger.has_room(ledger.requests.of(demand), demand.minimum) for demand in demands)


@dataclass(frozen=True, slots=True)
class Victims:
    """The victims by index, and the ledger as it would be after they have ended."""

    indexes: Sequence[int]
    ledger: NodeLedger


def select_victims(
    demands: Sequence[Demand], order: Amounts, held: AllocationTable, ledger: NodeLedger
) -> Victims | None:
    """Select victims: the shortest prefix of the order that suffices, minus those in it that are not needed.

    None if the demands would not fit even if all had ended. Of those that are not needed, the last ones are left out
    first.
    """

    def suffice(owners: Sequence[int] | Amounts) -> bool:
        return is_feasible(demands, held.ledger_without(owners, ledger))

    simulation = PreemptionSimulation(demands, ledger, held)
    least = simulation.sufficient_prefix_length(order)
    if least is None:
        return None
    prefix = order[:least]
    needed = simulation.needed_owners(prefix)
    after = held.ledger_without(needed, ledger)
    if is_feasible(demands, after):
        return Victims(needed, after)
    # The simulation checks each demand by itself; together they may not fit.
    if not suffice(order):
        return None
    needed = _minimal(order[: shortest_sufficient_prefix(order, least, suffice)].tolist(), suffice)
    return Victims(needed, held.ledger_without(needed, ledger))


def shortest_sufficient_prefix(order: Amounts, least: int, suffice: Callable[[Amounts], bool]) -> int:
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
