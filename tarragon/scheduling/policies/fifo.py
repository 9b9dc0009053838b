"""First in, first out: nobody passes a gang that could run once others have ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tarragon.base import quantity
from tarragon.base.resources import MEMORY, PODS, Resources, shortage, total
from tarragon.job.model import Replica
from tarragon.scheduling.decision import (
    BEHIND_OTHERS,
    INSUFFICIENT_RESOURCES,
    NEVER_FITS,
    NO_NODE_MAY,
    NODES_AWAY,
    Decision,
    Place,
    Resize,
    Wait,
)
from tarragon.scheduling.fit import extend, place
from tarragon.scheduling.ledger import Ledger
from tarragon.scheduling.snapshot import Demand, Gang, RunningGang, Snapshot

MOST_NAMED = 4
"""Nodes that are named where many of them have the same to say."""


def fifo(snapshot: Snapshot) -> Sequence[Decision]:
    """Wishes that have sunk are granted at once, and who lost a node gets another; then gangs start in order of queue
    time, then running ones may grow.

    A gang that could not run on the empty cluster blocks nobody, nor does one that needs nodes which are away.
    """
    ledger = Ledger.of_free(snapshot.nodes)
    empty = Ledger.of_capacity(snapshot.nodes)
    decisions: list[Decision] = [resize for gang in snapshot.running if (resize := kept(gang, ledger)) is not None]
    head: Gang | None = None
    for gang in sorted(snapshot.waiting, key=lambda gang: gang.order):
        decision = _start(gang, head, snapshot, (ledger, empty))
        if isinstance(decision, Wait) and decision.code == INSUFFICIENT_RESOURCES:
            head = gang
        decisions.append(decision)
    if head is None:
        changing = {decision.gang for decision in decisions if isinstance(decision, Resize)}
        decisions += [
            resize
            for gang in snapshot.running
            if gang.name not in changing and (resize := grown(gang, ledger)) is not None
        ]
    return decisions


def shrunk(gang: RunningGang) -> Resize | None:
    """Without the replicas beyond the wish, highest index first; None when there are none."""
    wish = {demand.type: demand.wish for demand in gang.demands}
    kept = {replica: node for replica, node in gang.nodes.items() if replica.index < wish.get(replica.type, 0)}
    return Resize(gang.name, kept) if len(kept) < len(gang.nodes) else None


def kept(gang: RunningGang, ledger: Ledger) -> Resize | None:
    """Without what the wish does away with, and with other places for those whose node is gone, if there are any."""
    shrinking = shrunk(gang)
    nodes = gang.nodes if shrinking is None else shrinking.nodes
    demands = {demand.type: demand for demand in gang.demands}
    homeless = [(replica, demands[replica.type]) for replica in sorted(gang.homeless & nodes.keys())]
    if not homeless:
        return shrinking
    housed = {replica: node for replica, node in nodes.items() if replica not in gang.homeless}
    found = extend(homeless, ledger, near=housed)
    return Resize(gang.name, {**nodes, **found}) if found else shrinking


def grown(gang: RunningGang, ledger: Ledger) -> Resize | None:
    """With as many of the missing replicas as there is room for; None when nothing is missing or nothing fits."""
    if not gang.elastic:
        return None
    missing = list(_missing(gang))
    added = extend(missing, ledger, near=gang.nodes)
    if gang.whole and len(added) < len(missing):
        ledger.undo(added, {replica: demand.each for replica, demand in missing})
        return None
    return Resize(gang.name, {**gang.nodes, **added}) if added else None


def could_ever_fit(gang: Gang, empty: Ledger) -> bool:
    """Whether the smallest form of the gang has room on the empty cluster, which is left as it was."""
    smallest = [replace(demand, wish=demand.minimum) for demand in gang.demands]
    nodes = place(smallest, empty)
    if nodes is None:
        return False
    each = {demand.type: demand.each for demand in gang.demands}
    empty.undo(nodes, {replica: each[replica.type] for replica in nodes})
    return True


def _missing(gang: RunningGang) -> Iterator[tuple[Replica, Demand]]:
    for demand in gang.demands:
        for index in range(demand.wish):
            replica = Replica(demand.type, index)
            if replica not in gang.nodes:
                yield replica, demand


def _start(gang: Gang, head: Gang | None, snapshot: Snapshot, ledgers: tuple[Ledger, Ledger]) -> Decision:
    ledger, empty = ledgers
    if not could_ever_fit(gang, empty):
        if snapshot.away and could_ever_fit(gang, Ledger.of_capacity([*snapshot.nodes, *snapshot.away])):
            return Wait(gang.name, NODES_AWAY, _away(gang, snapshot))
        return Wait(gang.name, NEVER_FITS, _never_fits(gang, snapshot))
    if head is not None:
        return Wait(gang.name, BEHIND_OTHERS, f"{head.name} came first and waits for resources")
    nodes = place(gang.demands, ledger)
    if nodes is None:
        return Wait(gang.name, INSUFFICIENT_RESOURCES, _short(gang, ledger))
    return Place(gang.name, nodes)


def _away(gang: Gang, snapshot: Snapshot) -> str:
    """What is lacking without them, and which they are."""
    mine = [node for node in snapshot.away if any(node.name in demand.eligible for demand in gang.demands)]
    named = [f"node {node.name} {node.away}" for node in mine[:MOST_NAMED]]
    others = [f"{len(mine) - MOST_NAMED} more"] if len(mine) > MOST_NAMED else []
    who = ", ".join([*named, *others])
    useful = [node for node in snapshot.nodes if any(node.name in demand.eligible for demand in gang.demands)]
    if not useful:
        return f"no node that may run it takes anybody now: {who}"
    return f"{_compared(gang, total(node.capacity for node in useful), 'the other nodes have')}; {who}"


def _never_fits(gang: Gang, snapshot: Snapshot) -> str:
    there = [*snapshot.nodes, *snapshot.away]
    if not there:
        return "the cluster has no node that is ready"
    for demand in gang.demands:
        if demand.minimum and not demand.eligible:
            why = demand.refused or "look at its node selector, affinity, tolerations and volumes"
            return f"{NO_NODE_MAY} a {demand.type.word}: {why}"
    for demand in gang.demands:
        offers = [node.capacity for node in there if node.name in demand.eligible]
        nearest = min(offers, key=lambda offer: _weight(shortage(demand.each, offer)), default={})
        lacking = shortage(demand.each, nearest)
        if demand.minimum and lacking:
            best = "the node has" if len(there) == 1 else "the roomiest node has"
            asked, offered = _words(demand.each, lacking), _words(nearest, lacking)
            return f"no node is large enough for one {demand.type.word}: it asks for {asked}; {best} {offered}"
    whole = total(node.capacity for node in there)
    return f"the cluster is too small even when it is empty: {_compared(gang, whole, 'it has')}"


def _short(gang: Gang, ledger: Ledger) -> str:
    """Without what others have been given in this round."""
    free = total({name: max(0, amount) for name, amount in ledger.free(node).items()} for node in ledger)
    return _compared(gang, free, "free are")


def _compared(gang: Gang, offer: Resources, there_is: str) -> str:
    wanted = total({name: amount * demand.minimum for name, amount in demand.each.items()} for demand in gang.demands)
    lacking = shortage(wanted, offer)
    if not lacking:
        return f"the gang needs {_words(wanted, wanted)}; there is as much, but not in pieces that are large enough"
    return f"the gang needs {_words(wanted, lacking)}; {there_is} {_words(offer, lacking)}"


def _weight(lacking: Resources) -> tuple[int, int]:
    return len(lacking), sum(lacking.values())


def _words(amounts: Resources, named: Resources) -> str:
    return ", ".join(
        f"{_amount(name, amounts.get(name, 0))} {name}" for name in sorted(named) if name != PODS or len(named) == 1
    )


def _amount(name: str, milli: int) -> str:
    """Bytes rounded for the eye: a shortage of 8160437862 bytes reads as 7.6Gi."""
    gibi = 2**30 * 1000
    if name == MEMORY and milli >= gibi:
        return f"{milli / gibi:.1f}Gi".replace(".0Gi", "Gi")
    return quantity.text(milli)
