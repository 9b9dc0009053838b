"""The words of waits: what is short where, in amounts that people read.

Thousands of gangs may wait for one reason. What changes in every round for all of them is not in their words: each
change is a write.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from tarragon.base import quantity
from tarragon.base.resources import MEMORY, PODS, Resources, shortage, total
from tarragon.scheduling.api.decision import NEVER_WITHIN_QUOTA, NO_NODE_MAY
from tarragon.scheduling.api.snapshot import Demand, Gang, Snapshot
from tarragon.scheduling.state.inventory import Inventory
from tarragon.scheduling.state.ledger import Ledger

MOST_NAMED = 4
"""Nodes that are named where many of them have the same to say."""

BEHIND = "a job that goes first waits for resources"
KEPT = "there is room for it, which is kept for a job that goes first"
RELEASING = "its places are kept for it; pods that have been told to end still hold them"


def away(gang: Gang, snapshot: Snapshot) -> str:
    """What is lacking without them, and which they are."""
    mine = [node for node in snapshot.away if any(node.name in demand.eligible for demand in gang.demands)]
    named = [f"node {node.name} {node.away}" for node in mine[:MOST_NAMED]]
    others = [f"{len(mine) - MOST_NAMED} more"] if len(mine) > MOST_NAMED else []
    who = ", ".join([*named, *others])
    useful = [node for node in snapshot.nodes if any(node.name in demand.eligible for demand in gang.demands)]
    if not useful:
        return f"no node that may run it takes anybody now: {who}"
    return f"{_compared(least(gang.demands), total(node.capacity for node in useful), 'the other nodes have')}; {who}"


def never_fits(gang: Gang, snapshot: Snapshot) -> str:
    """Which replica is too large for every node, or that all of them together are too few."""
    there = [*snapshot.nodes, *snapshot.away]
    if not there:
        return "the cluster has no node that is ready"
    for demand in gang.demands:
        if demand.minimum and not demand.eligible:
            why = demand.refused or "look at its node selector, affinity, tolerations and volumes"
            return f"{NO_NODE_MAY} a {demand.type.word}: {why}"
    here, elsewhere = Inventory.of(snapshot.nodes), Inventory.of(snapshot.away)
    for demand in gang.demands:
        offers = [nodes.nearest(demand.each, demand.eligible) for nodes in (here, elsewhere)]
        nearest = min(offers, key=lambda offer: _weight(shortage(demand.each, offer)), default={})
        lacking = shortage(demand.each, nearest)
        if demand.minimum and lacking:
            best = "the node has" if len(there) == 1 else "the roomiest node has"
            asked, offered = words(demand.each, lacking), words(nearest, lacking)
            return f"no node is large enough for one {demand.type.word}: it asks for {asked}; {best} {offered}"
    may = frozenset[str]().union(*(demand.eligible for demand in gang.demands if demand.minimum))
    whole = total(nodes.total(nodes.capacity[nodes.mask(may)]) for nodes in (here, elsewhere))
    if all(node.name in may for node in there):
        return f"the cluster is too small even when it is empty: {_compared(least(gang.demands), whole, 'it has')}"
    where = f"the {len(may)} of {len(there)} nodes that may run it are too small even when they are empty"
    return f"{where}: {_compared(least(gang.demands), whole, 'they have')}"


def crowded(gang: Gang) -> str:
    """How others are in the way of a gang that asks to be near them, or apart from them; empty where they are not."""
    said = {f"{demand.type.word}: {demand.crowded}": None for demand in gang.demands if demand.crowded}
    return "; ".join(said)


def short(asked: Resources, ledger: Ledger) -> str:
    """Without what others have been given in this round."""
    return _compared(asked, ledger.total(), "free are")


def over_quota(gang: Gang, held: Resources, quota: Resources) -> str:
    """What its namespace holds, what the gang asks for at least, and what the quota is."""
    asked = least(gang.demands)
    over = [name for name, limit in quota.items() if asked.get(name, 0) > max(0, limit - held.get(name, 0))]
    if not over or any(asked[name] > quota[name] for name in over):
        return behind_in_queue(gang, quota)
    mine = dict.fromkeys(over, 0)
    holds, needs, limits = words(held, mine), words(asked, mine), words(quota, mine)
    return f"the gang needs {needs}; {gang.queue} holds {holds}, and its quota is {limits}"


def behind_in_queue(gang: Gang, quota: Resources) -> str:
    """The same without what changes from moment to moment, for those that others of the namespace go before."""
    asked = least(gang.demands)
    alone = {name: limit for name, limit in quota.items() if asked.get(name, 0) > limit}
    if alone:
        needs, limits = words(asked, alone), words(quota, alone)
        return f"{NEVER_WITHIN_QUOTA}: the gang alone needs {needs}; the quota of {gang.queue} is {limits}"
    mine = {name: limit for name, limit in quota.items() if asked.get(name, 0) > 0}
    needs, limits = words(asked, mine), words(quota, mine)
    return f"the gang needs {needs}; the quota of {gang.queue} is {limits}, and others of it go first"


def least(demands: Sequence[Demand]) -> dict[str, int]:
    """What the smallest form of a gang holds in all."""
    return total({name: amount * demand.minimum for name, amount in demand.each.items()} for demand in demands)


def words(amounts: Resources, named: Resources) -> str:
    """The amounts of the resources that are named, each with its name."""
    return ", ".join(
        f"{_amount(name, amounts.get(name, 0))} {name}" for name in sorted(named) if name != PODS or len(named) == 1
    )


def _compared(wanted: Resources, offer: Resources, there_is: str) -> str:
    lacking = shortage(wanted, offer)
    if not lacking:
        return f"the gang needs {words(wanted, wanted)}; there is as much, but not in pieces that are large enough"
    return f"the gang needs {words(wanted, lacking)}; {there_is} {words(offer, lacking)}"


def _weight(lacking: Resources) -> tuple[int, int]:
    return len(lacking), sum(lacking.values())


@lru_cache(maxsize=4096)
def _amount(name: str, milli: int) -> str:
    """Bytes rounded for the eye: a shortage of 8160437862 bytes reads as 7.6Gi."""
    gibi = 2**30 * 1000
    if name == MEMORY and milli >= gibi:
        return f"{milli / gibi:.1f}Gi".replace(".0Gi", "Gi")
    return quantity.text(milli)
