"""The reasons of waiting gangs: which resources are short where, in readable amounts.

Thousands of gangs may wait for the same reason. Messages leave out what changes for all of them in every cycle, because
each change is a write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from types import MappingProxyType

import numpy as np

from tarragon.base import quantity
from tarragon.base.resources import GPU_MEMORY, MEMORY, NVIDIA_GPU, PODS, Resources, add_resources, shortage, subtract
from tarragon.job.status import WaitReason
from tarragon.scheduling.api.decision import (
    BEHIND_OTHERS,
    INSUFFICIENT_RESOURCES,
    NEVER_FITS,
    NODES_UNAVAILABLE,
    QUOTA_EXCEEDED,
    WaitCause,
)
from tarragon.scheduling.api.snapshot import Demand, Snapshot, WaitingGang
from tarragon.scheduling.explain.gpu_shortage import LastingShortage, gpu_shortage, gpu_shortage_when_empty
from tarragon.scheduling.state.inventory import Inventory
from tarragon.scheduling.state.ledger import NodeLedger

MAX_NAMED_NODES = 4
"""The number of nodes that a message names."""

JOB_AHEAD = WaitReason(code=BEHIND_OTHERS, message="a job ahead of it in the queue waits for resources")
RESERVED_FOR_JOB_AHEAD = WaitReason(
    code=BEHIND_OTHERS, message="there is room for it, but it is reserved for a job ahead of it in the queue"
)
MEANT_FOR_OTHERS = WaitReason(
    code=BEHIND_OTHERS, message="what is free is meant for other jobs, which are shorter or make better use of it"
)
_LABELS = MappingProxyType({GPU_MEMORY: "GPU memory"})
RELEASING = "resources are reserved for it, but terminating pods still hold them"


@dataclass(frozen=True, slots=True)
class _Away:
    """Nodes that would help if they were back."""

    reasons: Mapping[str, str]
    """Why those are away that are named first."""
    count: int


def nodes_unavailable(gang: WaitingGang, snapshot: Snapshot) -> WaitReason:
    """Say what the gang lacks without the unavailable nodes, and name these."""
    return _nodes_away(gang, snapshot, _Away({}, 0))


def nodes_under_pressure(gang: WaitingGang, snapshot: Snapshot, ledger: NodeLedger) -> WaitReason:
    """Say what the gang lacks without nodes under pressure and unavailable ones, and name these. `ledger` is of the
    snapshot's nodes.
    """
    return _nodes_away(gang, snapshot, _pressured(gang.demands, ledger))


def _nodes_away(gang: WaitingGang, snapshot: Snapshot, pressured: _Away) -> WaitReason:
    unavailable = {
        node.name: node.unavailable_reason
        for node in snapshot.unavailable_nodes
        if any(node.name in demand.eligible_nodes for demand in gang.demands)
    }
    listed = _listed(_Away({**unavailable, **pressured.reasons}, len(unavailable) + pressured.count))
    useful = [node for node in snapshot.nodes if any(node.name in demand.eligible_nodes for demand in gang.demands)]
    if not useful:
        message = f"all nodes that may run it are unavailable: {listed}"
        return WaitReason(code=NODES_UNAVAILABLE, message=message)
    lacking = gpu_shortage_when_empty(gang.demands, [Inventory.of(snapshot.nodes)], "the other nodes")
    comparison = _comparison(
        minimum_resources(gang.demands), add_resources(node.capacity for node in useful), "the other nodes have"
    )
    message = comparison if lacking is None else lacking.text
    return WaitReason(code=NODES_UNAVAILABLE, message=f"{message}; {listed}")


def _pressured(demands: Sequence[Demand], ledger: NodeLedger) -> _Away:
    """The nodes that are no choice only while they are under pressure, and on which a replica fits when they are empty.

    Each message asks this of thousands of nodes: their rows are in the order of names, and few names are looked up.
    """
    nodes, found, reasons = ledger.nodes, np.zeros(0, np.int64), dict[str, str]()
    for demand in demands:
        why = demand.pressured_nodes.reasons
        if demand.minimum and why:
            mask = ledger.requests.eligible_rows(demand.pressured_nodes.names).mask
            rows = np.flatnonzero(ledger.requests.of(demand).room(nodes.capacity, mask))
            found = np.union1d(found, rows)
            reasons |= {nodes.names[row]: why[nodes.names[row]] for row in rows[:MAX_NAMED_NODES]}
    return _Away(dict(sorted(reasons.items())[:MAX_NAMED_NODES]), len(found))


def _listed(nodes: _Away) -> str:
    named = [f"node {name} {reason}" for name, reason in islice(nodes.reasons.items(), MAX_NAMED_NODES)]
    rest = [f"{nodes.count - len(named)} more"] if nodes.count > len(named) else []
    return ", ".join([*named, *rest])


def never_fits(gang: WaitingGang, snapshot: Snapshot) -> WaitReason:
    """Say that no node may run a replica, which one is too large for every node, or that all nodes are too small."""
    for demand in gang.demands if snapshot.nodes or snapshot.unavailable_nodes else ():
        if demand.minimum and not demand.eligible_nodes:
            why = demand.ineligible_reason or "check its node selector, affinity, tolerations and volumes"
            message = f"no node may run a {demand.type.lower()}: {why}"
            return WaitReason(code=NEVER_FITS, message=message, cause=WaitCause.NO_ELIGIBLE_NODE)
    lacking = _too_small_gpus(gang, snapshot)
    if lacking is not None:
        return WaitReason(code=NEVER_FITS, message=lacking.text, cause=lacking.cause)
    return WaitReason(code=NEVER_FITS, message=_too_large(gang, snapshot))


def _too_small_gpus(gang: WaitingGang, snapshot: Snapshot) -> LastingShortage | None:
    count = len(snapshot.nodes) + len(snapshot.unavailable_nodes)
    is_limited = any(demand.share is not None and len(demand.eligible_nodes) < count for demand in gang.demands)
    whose = "the nodes that may run it" if is_limited else "the cluster"
    inventories = Inventory.of(snapshot.nodes), Inventory.of(snapshot.unavailable_nodes)
    return gpu_shortage_when_empty(gang.demands, inventories, whose)


def _too_large(gang: WaitingGang, snapshot: Snapshot) -> str:
    all_nodes = [*snapshot.nodes, *snapshot.unavailable_nodes]
    if not all_nodes:
        return "the cluster has no node that is ready"
    available, unavailable = Inventory.of(snapshot.nodes), Inventory.of(snapshot.unavailable_nodes)
    for demand in gang.demands:
        offers = [nodes.closest_capacity(demand.resources, demand.eligible_nodes) for nodes in (available, unavailable)]
        nearest = min(offers, key=lambda offer: _shortage_key(shortage(demand.resources, offer)), default={})
        missing = shortage(demand.resources, nearest)
        if demand.minimum and missing:
            largest = "the node has" if len(all_nodes) == 1 else "the largest node has"
            asked, offered = format_resources(demand.resources, missing), format_resources(nearest, missing)
            return f"no node is large enough for one {demand.type.lower()}: it requests {asked}; {largest} {offered}"
    eligible = frozenset[str]().union(*(demand.eligible_nodes for demand in gang.demands if demand.minimum))
    capacity = add_resources(nodes.total(nodes.capacity[nodes.mask(eligible)]) for nodes in (available, unavailable))
    if all(node.name in eligible for node in all_nodes):
        compared = _comparison(minimum_resources(gang.demands), capacity, "it has")
        return f"the cluster is too small even when empty: {compared}"
    where = f"the {len(eligible)} of {len(all_nodes)} nodes that may run it are too small even when empty"
    return f"{where}: {_comparison(minimum_resources(gang.demands), capacity, 'they have')}"


def blocked_by_affinity(gang: WaitingGang) -> WaitReason | None:
    """Say how pods of others restrict a gang with pod affinity or anti-affinity; None if they do not."""
    messages = {
        f"{demand.type.lower()}: {demand.affinity_reason}": None for demand in gang.demands if demand.affinity_reason
    }
    return WaitReason(code=INSUFFICIENT_RESOURCES, message="; ".join(messages)) if messages else None


def insufficient_resources(demands: Sequence[Demand], asked: Resources, ledger: NodeLedger) -> WaitReason:
    """Say what the job needs and what is free, without what this cycle has given to others. `asked` is the total of
    the demands, which are those of the minimum size.
    """
    free, gpus = ledger.total(), ledger.gpus_left()
    parts = sum(demand.share.request * demand.minimum for demand in demands if demand.share is not None)
    whole = subtract(asked, {NVIDIA_GPU: parts}) if parts else asked
    lacking = list(dict.fromkeys(filter(None, (gpu_shortage(demand, ledger) for demand in demands)))) if parts else []
    if missing := shortage(whole, free):
        others = " and parts of others" if NVIDIA_GPU in missing and gpus is not None and gpus.has_shared else ""
        lacking.append(
            f"the job needs {format_resources(whole, missing)}; free: {format_resources(free, missing)}{others}"
        )
    if not lacking:
        available = {**free, NVIDIA_GPU: gpus.total} if parts and gpus is not None else free
        lacking.append(_together(demands, asked, available, ledger))
    pressured = _pressured(demands, ledger)
    if pressured.count:
        lacking.append(_listed(pressured))
    return WaitReason(code=INSUFFICIENT_RESOURCES, message="; ".join(lacking))


def _together(demands: Sequence[Demand], asked: Resources, available: Resources, ledger: NodeLedger) -> str:
    """Say what the demands lack of which none lacks parts of GPUs by itself."""
    needed = [demand for demand in demands if demand.minimum]
    has_room = all(ledger.has_room(ledger.requests.of(demand), demand.minimum) for demand in needed)
    if len(needed) == 1 or not has_room or shortage(asked, available):
        return _comparison(asked, available, "free:")
    needs = format_resources(asked, asked)
    return f"the job needs {needs}; there is room for each type of its replicas, but not for all of them"


def over_quota(gang: WaitingGang, held: Resources, quota: Resources) -> WaitReason:
    """Say what the job needs at least, what its queue holds, and what the quota is."""
    asked = minimum_resources(gang.demands)
    exceeded = [name for name, limit in quota.items() if asked.get(name, 0) > max(0, limit - held.get(name, 0))]
    if not exceeded or any(asked[name] > quota[name] for name in exceeded):
        return behind_in_queue(gang, quota)
    named = dict.fromkeys(exceeded, 0)
    holds, needs, limits = format_resources(held, named), format_resources(asked, named), format_resources(quota, named)
    message = f"the job needs {needs}; {gang.queue} holds {holds} of its quota of {limits}"
    return WaitReason(code=QUOTA_EXCEEDED, message=message)


def behind_in_queue(gang: WaitingGang, quota: Resources) -> WaitReason:
    """Say the same without amounts that change often, for gangs behind the first one of their queue."""
    asked = minimum_resources(gang.demands)
    exceeded = {name: limit for name, limit in quota.items() if asked.get(name, 0) > limit}
    if exceeded:
        needs, limits = format_resources(asked, exceeded), format_resources(quota, exceeded)
        message = f"waiting does not help: the job alone needs {needs}; the quota of {gang.queue} is {limits}"
        return WaitReason(code=QUOTA_EXCEEDED, message=message, cause=WaitCause.LARGER_THAN_QUOTA)
    named = {name: limit for name, limit in quota.items() if asked.get(name, 0) > 0}
    needs, limits = format_resources(asked, named), format_resources(quota, named)
    message = f"the job needs {needs}; the quota of {gang.queue} is {limits}, and other jobs in it go first"
    return WaitReason(code=QUOTA_EXCEEDED, message=message)


def minimum_resources(demands: Sequence[Demand]) -> dict[str, int]:
    """The total resources of the gang's minimum size."""
    return add_resources(
        {name: amount * demand.minimum for name, amount in demand.resources.items()} for demand in demands
    )


def format_resources(amounts: Resources, named: Resources) -> str:
    """Format the amounts of the named resources, each with its name."""
    return ", ".join(
        f"{_amount(name, amounts.get(name, 0))} {_LABELS.get(name, name)}"
        for name in sorted(named)
        if name != PODS or len(named) == 1
    )


def _comparison(needed: Resources, available: Resources, label: str) -> str:
    missing = shortage(needed, available)
    if not missing:
        return f"the job needs {format_resources(needed, needed)}; there is as much in total, but too fragmented"
    return f"the job needs {format_resources(needed, missing)}; {label} {format_resources(available, missing)}"


def _shortage_key(missing: Resources) -> tuple[int, int]:
    return len(missing), sum(missing.values())


@lru_cache(maxsize=4096)
def _amount(name: str, milli: int) -> str:
    """Format an amount. Bytes are rounded: a shortage of 8160437862 bytes reads as 7.6Gi."""
    gibi = 2**30 * 1000
    if name == MEMORY and milli >= gibi:
        return f"{milli / gibi:.1f}Gi".replace(".0Gi", "Gi")
    if name == GPU_MEMORY:
        return quantity.format_bytes(milli)
    # Devices are counted, as parts of GPUs: `0.5 nvidia.com/gpu`.
    return quantity.format_decimal(milli) if "/" in name else quantity.format_milli(milli)
