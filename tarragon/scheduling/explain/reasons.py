"""What keeps a gang from starting, and what would let it: the very questions of a policy, asked of other pictures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tarragon.base.resources import Resources, shortage, total
from tarragon.job.model import Replica, ReplicaType
from tarragon.scheduling.api.snapshot import Demand, NodeState, RunningGang, Snapshot
from tarragon.scheduling.explain.forecast import held_by
from tarragon.scheduling.placement.fit import could_fit
from tarragon.scheduling.state.inventory import Inventory
from tarragon.scheduling.state.ledger import Ledger

MOST_NODES = 3
"""The nearest to fit are told, no more."""
MOST_TRIED = 100
"""Gangs whose end is thought through."""
MOST_ENDS = 4
"""If more of them have to end, it is not told which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAccount:
    """A node that may run the replica that is short of something."""

    name: str
    room: int
    """How many of them it takes now."""
    has: Resources
    """In all, of what one of them asks for."""
    free: Resources
    lacking: Resources
    """For one more of them."""
    releasing: Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Of a gang that waits. What is empty is not the case, or was not found."""

    fits: bool
    """There is room for it at this moment: what it waits for is its turn, or its quota."""
    type: ReplicaType
    """The replicas for which there is no room, together with those before them."""
    each: Resources
    least: int
    lacking: Resources
    """In sum; where nothing is, there is enough, but in pieces that are too small."""
    nodes: Sequence[NodeAccount] = ()
    refusing: int = 0
    """Nodes that may not run it, whatever is free there."""
    smaller: int = 0
    """With so many of these replicas, it would start now."""
    ends: Sequence[str] = ()
    """Gangs after whose end it fits, the fewest that were found."""
    gives: Sequence[str] = ()
    """Elastic gangs that have enough above their minimum, if they gave it back."""
    releasing: bool = False
    """It fits as soon as the pods have ended that were told to."""
    back: Sequence[str] = ()
    """Nodes with which it would fit, if they were not away."""


def explained(name: str, picture: Snapshot) -> Explanation:
    """Of the gang of that name, which waits in the picture."""
    gang = next(gang for gang in picture.waiting if gang.name == name)
    smallest = [replace(demand, wish=demand.minimum) for demand in gang.demands]
    nodes = Inventory.of(picture.nodes)
    short = _short(smallest, nodes)
    free = total({name: max(0, amount) for name, amount in node.free.items()} for node in _useful(short, nodes))
    wanted = total({name: amount * demand.minimum for name, amount in demand.each.items()} for demand in smallest)
    known = Explanation(
        fits=_fits(smallest, nodes),
        type=short.type,
        each=short.each,
        least=short.minimum,
        lacking=shortage(wanted, free),
        nodes=_nearest(short, nodes),
        refusing=sum(node.name not in short.eligible for node in [*nodes, *picture.away]),
    )
    if known.fits:
        return known
    return replace(
        known,
        smaller=_smaller(smallest, short, nodes),
        ends=_ends(smallest, picture.running, nodes),
        gives=_gives(smallest, picture.running, nodes),
        releasing=_fits(smallest, [_released(node) for node in nodes]),
        back=_back(smallest, nodes, picture.away),
    )


def _fits(demands: Sequence[Demand], nodes: Iterable[NodeState]) -> bool:
    return could_fit(demands, Ledger.of_free(nodes))


def _short(demands: Sequence[Demand], nodes: Inventory) -> Demand:
    """The first that does not fit together with those before it; the last where all do."""
    for number, demand in enumerate(demands):
        if demand.minimum and not _fits(demands[: number + 1], nodes):
            return demand
    return demands[-1]


def _useful(demand: Demand, nodes: Iterable[NodeState]) -> Sequence[NodeState]:
    return [node for node in nodes if node.name in demand.eligible]


def _nearest(demand: Demand, nodes: Inventory) -> Sequence[NodeAccount]:
    """Those with most room first, then those that lack least."""
    room = Ledger.of_free(nodes).room(demand)
    accounts = [
        NodeAccount(
            name=node.name,
            room=int(times),
            has=_of(demand, node.capacity),
            free=_of(demand, node.free),
            lacking=shortage(demand.each, node.free),
            releasing=_of(demand, node.releasing),
        )
        for node, times in zip(nodes, room, strict=True)
        if node.name in demand.eligible
    ]
    return sorted(accounts, key=lambda one: (-one.room, len(one.lacking), sum(one.lacking.values()), one.name))[
        :MOST_NODES
    ]


def _of(demand: Demand, amounts: Resources) -> Resources:
    return {name: max(0, amounts.get(name, 0)) for name, amount in demand.each.items() if amount > 0}


def _released(node: NodeState) -> NodeState:
    return replace(node, free=total([node.free, node.releasing]), releasing={}) if node.releasing else node


def _smaller(demands: Sequence[Demand], short: Demand, nodes: Inventory) -> int:
    """The most of the short replicas with which all fits; 0 where not even one would."""
    fits, too_many = 0, short.minimum
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        tried = [replace(each, minimum=middle, wish=middle) if each.type is short.type else each for each in demands]
        fits, too_many = (middle, too_many) if _fits(tried, nodes) else (fits, middle)
    return fits


def _ends(demands: Sequence[Demand], running: Sequence[RunningGang], nodes: Inventory) -> Sequence[str]:
    """One gang alone if there is such a one, the smallest of them; else the largest together, as many as it takes."""
    useful = frozenset().union(*(demand.eligible for demand in demands))
    holding = [(gang, held) for gang in running for held in [held_by(gang)] if held.keys() & useful]
    by_size = sorted(holding, key=lambda each: (len(each[0].nodes), each[0].name))
    for gang, held in by_size[:MOST_TRIED]:
        if _fits(demands, _without([held], nodes)):
            return [gang.name]
    together: list[tuple[RunningGang, Mapping[str, Resources]]] = []
    for each in by_size[: -MOST_ENDS - 1 : -1]:
        together.append(each)
        if _fits(demands, _without([held for _, held in together], nodes)):
            return [gang.name for gang, _ in together]
    return ()


def _gives(demands: Sequence[Demand], running: Sequence[RunningGang], nodes: Inventory) -> Sequence[str]:
    """One of them alone if one is enough, else all of them; nothing where that would be too many to tell."""
    spare = [(gang.name, held) for gang in running if gang.elastic for held in [_above_minimum(gang)] if held]
    for name, held in spare[:MOST_TRIED]:
        if _fits(demands, _without([held], nodes)):
            return [name]
    several = len(spare) <= MOST_ENDS and _fits(demands, _without([held for _, held in spare], nodes))
    return [name for name, _ in spare] if several else ()


def _above_minimum(gang: RunningGang) -> Mapping[str, Resources]:
    spared = {demand.type: demand.minimum for demand in gang.demands}
    above: dict[Replica, str] = {}
    for replica in sorted(gang.nodes):
        if spared.get(replica.type, 0) > 0:
            spared[replica.type] -= 1
        else:
            above[replica] = gang.nodes[replica]
    return held_by(replace(gang, nodes=above))


def _without(several: Sequence[Mapping[str, Resources]], nodes: Inventory) -> Inventory:
    freed: dict[str, NodeState] = {}
    for held in several:
        for name, amounts in held.items():
            if name in nodes.row_of:
                node = freed.get(name, nodes.states[nodes.row_of[name]])
                freed[name] = replace(node, free=total([node.free, amounts]))
    return nodes.changed(freed.values())


def _back(demands: Sequence[Demand], nodes: Inventory, away: Sequence[NodeState]) -> Sequence[str]:
    """One node alone if one is enough, else all of them; nothing where they would not help."""
    tried = [[node] for node in away[:MOST_TRIED]] + ([list(away)] if len(away) > 1 else [])
    for several in tried:
        if _fits(demands, [*nodes, *several]):
            return [node.name for node in several]
    return ()
