"""The messages of waiting gangs: which resources are short where, in readable amounts.

Thousands of gangs may wait for the same reason. Messages leave out what changes for all of them in every cycle, because
each change is a write.
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
"""The number of nodes that a message names."""

BEHIND = "a job ahead of it in the queue waits for resources"
KEPT = "there is room for it, but it is reserved for a job ahead of it in the queue"
RELEASING = "resources are reserved for it, but terminating pods still hold them"


def away(gang: Gang, snapshot: Snapshot) -> str:
    """Say what the gang lacks without the unavailable nodes, and name these."""
    unavailable = [node for node in snapshot.away if any(node.name in demand.eligible for demand in gang.demands)]
    named = [f"node {node.name} {node.away}" for node in unavailable[:MOST_NAMED]]
    rest = [f"{len(unavailable) - MOST_NAMED} more"] if len(unavailable) > MOST_NAMED else []
    listed = ", ".join([*named, *rest])
    useful = [node for node in snapshot.nodes if any(node.name in demand.eligible for demand in gang.demands)]
    if not useful:
        return f"all nodes that may run it are unavailable: {listed}"
    comparison = _comparison(least(gang.demands), total(node.capacity for node in useful), "the other nodes have")
    return f"{comparison}; {listed}"


def never_fits(gang: Gang, snapshot: Snapshot) -> str:
    """Say which replica is too large for every node, or that all nodes together are too small."""
    all_nodes = [*snapshot.nodes, *snapshot.away]
    if not all_nodes:
        return "the cluster has no node that is ready"
    for demand in gang.demands:
        if demand.minimum and not demand.eligible:
            reason = demand.refused or "check its node selector, affinity, tolerations and volumes"
            return f"{NO_NODE_MAY} a {demand.type.word}: {reason}"
    available, unavailable = Inventory.of(snapshot.nodes), Inventory.of(snapshot.away)
    for demand in gang.demands:
        offers = [nodes.nearest(demand.each, demand.eligible) for nodes in (available, unavailable)]
        nearest = min(offers, key=lambda offer: _shortage_key(shortage(demand.each, offer)), default={})
        missing = shortage(demand.each, nearest)
        if demand.minimum and missing:
            largest = "the node has" if len(all_nodes) == 1 else "the largest node has"
            asked, offered = words(demand.each, missing), words(nearest, missing)
            return f"no node is large enough for one {demand.type.word}: it requests {asked}; {largest} {offered}"
    eligible = frozenset[str]().union(*(demand.eligible for demand in gang.demands if demand.minimum))
    capacity = total(nodes.total(nodes.capacity[nodes.mask(eligible)]) for nodes in (available, unavailable))
    if all(node.name in eligible for node in all_nodes):
        return f"the cluster is too small even when empty: {_comparison(least(gang.demands), capacity, 'it has')}"
    where = f"the {len(eligible)} of {len(all_nodes)} nodes that may run it are too small even when empty"
    return f"{where}: {_comparison(least(gang.demands), capacity, 'they have')}"


def crowded(gang: Gang) -> str:
    """Say how pods of others restrict a gang with pod affinity or anti-affinity; empty if they do not."""
    messages = {f"{demand.type.word}: {demand.crowded}": None for demand in gang.demands if demand.crowded}
    return "; ".join(messages)


def short(asked: Resources, ledger: Ledger) -> str:
    """Say what the job needs and what is free, without what this cycle has given to others."""
    return _comparison(asked, ledger.total(), "free:")


def over_quota(gang: Gang, held: Resources, quota: Resources) -> str:
    """Say what the job needs at least, what its queue holds, and what the quota is."""
    asked = least(gang.demands)
    exceeded = [name for name, limit in quota.items() if asked.get(name, 0) > max(0, limit - held.get(name, 0))]
    if not exceeded or any(asked[name] > quota[name] for name in exceeded):
        return behind_in_queue(gang, quota)
    named = dict.fromkeys(exceeded, 0)
    holds, needs, limits = words(held, named), words(asked, named), words(quota, named)
    return f"the job needs {needs}; {gang.queue} holds {holds} of its quota of {limits}"


def behind_in_queue(gang: Gang, quota: Resources) -> str:
    """Say the same without amounts that change often, for gangs behind the first one of their queue."""
    asked = least(gang.demands)
    exceeded = {name: limit for name, limit in quota.items() if asked.get(name, 0) > limit}
    if exceeded:
        needs, limits = words(asked, exceeded), words(quota, exceeded)
        return f"{NEVER_WITHIN_QUOTA}: the job alone needs {needs}; the quota of {gang.queue} is {limits}"
    named = {name: limit for name, limit in quota.items() if asked.get(name, 0) > 0}
    needs, limits = words(asked, named), words(quota, named)
    return f"the job needs {needs}; the quota of {gang.queue} is {limits}, and other jobs in it go first"


def least(demands: Sequence[Demand]) -> dict[str, int]:
    """The total resources of the gang's minimum size."""
    return total({name: amount * demand.minimum for name, amount in demand.each.items()} for demand in demands)


def words(amounts: Resources, named: Resources) -> str:
    """Format the amounts of the named resources, each with its name."""
    return ", ".join(
        f"{_amount(name, amounts.get(name, 0))} {name}" for name in sorted(named) if name != PODS or len(named) == 1
    )


def _comparison(needed: Resources, available: Resources, label: str) -> str:
    missing = shortage(needed, available)
    if not missing:
        return f"the job needs {words(needed, needed)}; there is as much in total, but too fragmented"
    return f"the job needs {words(needed, missing)}; {label} {words(available, missing)}"


def _shortage_key(missing: Resources) -> tuple[int, int]:
    return len(missing), sum(missing.values())


@lru_cache(maxsize=4096)
def _amount(name: str, milli: int) -> str:
    """Format an amount. Bytes are rounded: a shortage of 8160437862 bytes reads as 7.6Gi."""
    gibi = 2**30 * 1000
    if name == MEMORY and milli >= gibi:
        return f"{milli / gibi:.1f}Gi".replace(".0Gi", "Gi")
    return quantity.text(milli)
