"""Finding nodes for a gang: on one node if one takes it whole, else on as few as it goes, near its parameter servers.

Of answers with equally many nodes the best liked (preferred affinity) is taken; of these the one within the narrowest
domain, as one rack; of these the one that leaves least over, accelerators first; and of these the first by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from tarragon.job.model import Replica, ReplicaType
from tarragon.scheduling.api.snapshot import Demand
from tarragon.scheduling.placement.node_choice import Share, choose
from tarragon.scheduling.placement.packing import Packing
from tarragon.scheduling.placement.spreading import Walk, holds, packed
from tarragon.scheduling.state.ledger import Ledger

Placement = dict[Replica, str]


def place(demands: Sequence[Demand], ledger: Ledger) -> Placement | None:
    """Nodes for the gang at its wish, else as large as it goes, never below its minimum; None when that does not fit.

    What is returned has been taken from the ledger; after None the ledger is as before.
    """
    if _lacks(demands, ledger):
        return None
    shape = tuple(demand.shape for demand in demands)
    packing = None if shape in ledger.refused else _largest(demands, ledger)
    if packing is None:
        ledger.refused.add(shape)
        return None
    if packing:
        each = np.array([ledger.nodes.ask(demand).row for demand in demands])
        ledger.take_rows(list(packing), np.array(list(packing.values())) @ each)
    return _named(demands, packing, ledger)


def could_fit(demands: Sequence[Demand], ledger: Ledger) -> bool:
    """Whether `place` would find places, without taking any. Quick when gangs of the same shape have asked before."""
    shape = tuple(demand.shape for demand in demands)
    if shape in ledger.refused:
        return False
    if shape not in ledger.welcome:
        if _lacks(demands, ledger) or not holds(demands, [demand.minimum for demand in demands], ledger):
            ledger.refused.add(shape)
            return False
        ledger.welcome.add(shape)
    return True


def extend(wished: Sequence[tuple[Replica, Demand]], ledger: Ledger, near: Mapping[Replica, str]) -> Placement:
    """Places for as many of the wished replicas as there is room for, without gaps, near the others first."""
    groups: dict[ReplicaType, list[tuple[Replica, Demand]]] = {}
    for replica, demand in wished:
        groups.setdefault(demand.type, []).append((replica, demand))
    placed: Placement = {}
    for group in groups.values():
        gang = {**near, **placed}
        replicas, demand = [replica for replica, _ in group], group[0][1]
        beside = _one_by_one if demand.spreads else _beside
        rows = beside(demand, len(replicas), ledger, gang)
        placed.update(zip(replicas, (ledger.nodes.names[row] for row in rows), strict=False))
    return placed


def _lacks(demands: Sequence[Demand], ledger: Ledger) -> bool:
    """Whether others who asked for the same have been told that there is too little of it."""
    ask = ledger.nodes.ask
    for demand in demands:  # noqa: SIM110  # a generator takes as long as the question itself
        if ledger.lacks(ask(demand), demand.minimum):
            return True
    return False


def _largest(demands: Sequence[Demand], ledger: Ledger) -> Packing | None:
    """At its wish, else each demand in its turn as large as the others' minimum allows."""
    packing = packed(demands, [demand.wish for demand in demands], ledger)
    if packing is not None or all(demand.wish == demand.minimum for demand in demands):
        return packing
    counts = [demand.minimum for demand in demands]
    packing = packed(demands, counts, ledger)
    if packing is None:
        return None
    for place, demand in enumerate(demands):
        most = min(demand.wish, int(np.minimum(ledger.room(demand), demand.wish).sum()))
        fits, too_many, tried = counts[place], most + 1, most
        while too_many - fits > 1:
            counts[place] = tried
            larger = packed(demands, counts, ledger)
            if larger is None:
                too_many = tried
            else:
                packing, fits = larger, tried
            tried = (fits + too_many) // 2
        counts[place] = fits
    return packing


def _named(demands: Sequence[Demand], packing: Packing, ledger: Ledger) -> Placement:
    """The lowest indexes beside the parameter servers: whoever shrinks loses lonely replicas, and high indexes."""
    opened = sorted(packing.items(), key=lambda item: [-count for count in item[1]])
    placed: Placement = {}
    for place, demand in enumerate(demands):
        rows = [row for row, counts in opened for _ in range(counts[place])]
        placed |= {Replica(demand.type, index): ledger.nodes.names[row] for index, row in enumerate(rows)}
    return placed


def _home(near: Mapping[Replica, str], ledger: Ledger) -> list[int]:
    """The rows of these replicas, those of parameter servers first, then where most of them are."""
    here = {replica: node for replica, node in near.items() if node in ledger.nodes.row_of}
    servers = Counter(node for replica, node in here.items() if replica.type is ReplicaType.PS)
    others = Counter(here.values())
    names = sorted(others, key=lambda node: (-servers[node], -others[node], node))
    return [ledger.nodes.row_of[name] for name in names]


def _beside(demand: Demand, wished: int, ledger: Ledger, gang: Mapping[Replica, str]) -> list[int]:
    """A row for each, for as many as there is room for: where the gang is first. They are taken."""
    home = _home(gang, ledger)
    room = np.minimum(ledger.room(demand), wished)
    shares: list[Share] = []
    for row in home:
        taken = min(int(room[row]), wished)
        shares.append((row, taken))
        wished -= taken
    room[list(home)] = 0
    shares += choose(demand, min(wished, int(room.sum())), ledger, home)
    each = ledger.nodes.ask(demand).row
    for row, taken in shares:
        ledger.take_row(row, each * taken)
    return [row for row, taken in shares for _ in range(taken)]


def _one_by_one(demand: Demand, wished: int, ledger: Ledger, gang: Mapping[Replica, str]) -> list[int]:
    """As `_beside`, as the rules on how they lie over domains allow."""
    walk = Walk([demand], ledger)
    for row in _home(gang, ledger):
        for replica, node in gang.items():
            if node == ledger.nodes.names[row]:
                walk.is_at(replica.type, row)
    return walk.give(demand, wished)
