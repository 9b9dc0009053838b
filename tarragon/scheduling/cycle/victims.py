"""Which gangs would have to end for another one to start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tarragon.scheduling.api.snapshot import Demand, RunningGang
from tarragon.scheduling.cycle.preemption_simulation import Holdings, Trial
from tarragon.scheduling.placement.fit import could_fit
from tarragon.scheduling.state.inventory import Inventory
from tarragon.scheduling.state.ledger import Ledger
from tarragon.scheduling.state.node_requests import Amounts


def holders(gangs: Sequence[RunningGang], nodes: Inventory) -> Holdings:
    """What gangs that run hold, by their numbers."""
    owners, (rows, amounts) = nodes.pieces.of(gangs, nodes.held)
    return Holdings(len(gangs), owners, rows, amounts)


def has_as_much(demands: Sequence[Demand], ledger: Ledger) -> bool:
    """Whether each demand for itself has room for its minimum: quickly told, and without it nothing fits."""
    return all(ledger.has_as_many(demand, demand.minimum) for demand in demands)


@dataclass(frozen=True, slots=True)
class Ends:
    """Whose end is needed, by number, and the ledger as it would be then."""

    several: Sequence[int]
    ledger: Ledger


def fewest(demands: Sequence[Demand], order: Amounts, held: Holdings, ledger: Ledger) -> Ends | None:
    """The shortest beginning of the order that suffices, without those in it that are not needed, the last ones first.

    None if the demands would not fit even if all had ended.
    """

    def suffice(several: Sequence[int] | Amounts) -> bool:
        return could_fit(demands, held.without(several, ledger))

    trial = Trial(demands, ledger, held)
    least = trial.beginning(order)
    if least is None:
        return None
    enough = order[:least]
    needed = trial.needed(enough)
    then = held.without(needed, ledger)
    if could_fit(demands, then):
        return Ends(needed, then)
    # What only seems to suffice may be in too small pieces.
    if not suffice(order):
        return None
    needed = _needed(order[: shortest(order, least, suffice)].tolist(), suffice)
    return Ends(needed, held.without(needed, ledger))


def shortest(order: Amounts, least: int, suffice: Callable[[Amounts], bool]) -> int:
    """Of the beginnings with at least so many, the longest of which suffices."""
    too_few, enough = least - 1, len(order)
    while enough - too_few > 1:
        middle = (enough + too_few) // 2
        if suffice(order[:middle]):
            enough = middle
        else:
            too_few = middle
    return enough


def _needed(enough: list[int], suffice: Callable[[Sequence[int]], bool]) -> list[int]:
    """Whole parts are left out at once where that goes: few of many are needed as a rule."""
    parts = [enough]
    while parts:
        part = parts.pop()
        left_out = set(part)
        others = [number for number in enough if number not in left_out]
        if suffice(others):
            enough = others
        elif len(part) > 1:
            half = len(part) // 2
            parts += [part[:half], part[half:]]
    return enough
