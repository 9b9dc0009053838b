"""Explains why a gang does not start, and what would let it start, with the same placement code as policies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tarragon.base.resources import GPU_MEMORY, NVIDIA_GPU, Resources, add_resources, shortage
from tarragon.job.model import Replica, ReplicaType
from tarragon.scheduling.api.snapshot import Demand, NodeState, RunningGang, Snapshot
from tarragon.scheduling.explain.gpu_shortage import barring_text
from tarragon.scheduling.explain.node_gpus import NodeGpus, with_fractions
from tarragon.scheduling.explain.projected_cluster import allocation_by_node
from tarragon.scheduling.placement.fit import is_feasible
from tarragon.scheduling.state.inventory import Inventory
from tarragon.scheduling.state.ledger import NodeLedger

MAX_NODES = 3
"""The number of nodes in an explanation; the nearest to fitting come first."""
MAX_TRIED = 100
"""The number of gangs, or nodes, that are tried one by one."""
MAX_GANGS_TO_END = 4
"""If more gangs than this would have to end, none are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShortage:
    """A node that is eligible for the replica that does not fit. Of GPUs, amounts are fractions if the replica needs a
    part of one, and whole GPUs otherwise; `GPU_MEMORY` is that of the GPU that is nearest to having enough.
    """

    name: str
    room: int
    """How many of the replicas the node takes now."""
    capacity: Resources
    """The node's capacity of the requested resources."""
    free: Resources
    lacking: Resources
    """What is missing for one more replica."""
    releasing: Resources
    gpus: NodeGpus | None = None
    """Its GPUs, if the replica needs any of them and they may be shared."""
    barred_by: str = ""
    """The constraints because of which the replica may not share a GPU there that has enough left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitExplanation:
    """Why a gang waits. Fields are empty for what does not apply or was not found."""

    fits_now: bool
    """There is room for the gang now; it waits for its turn or its quota."""
    type: ReplicaType
    """The first replica type that does not fit together with those before it."""
    resources: Resources
    minimum: int
    lacking: Resources
    """What is missing in total; empty if there is enough but it is too fragmented."""
    nodes: Sequence[NodeShortage] = ()
    ineligible_nodes: int = 0
    """The number of nodes that are not eligible, whatever is free there."""
    fitting_size: int = 0
    """The gang would start now with this many of these replicas."""
    gangs_to_end: Sequence[str] = ()
    """Gangs whose end would make room, as few as were found."""
    gangs_to_shrink: Sequence[str] = ()
    """Elastic gangs whose replicas above the minimum would make room."""
    fits_after_termination: bool = False
    """Whether the gang fits once terminating pods have ended."""
    nodes_to_return: Sequence[str] = ()
    """Unavailable nodes with which the gang would fit."""


def explain_wait(name: str, snapshot: Snapshot) -> WaitExplanation:
    """Explain the gang of this name, which waits in the snapshot."""
    gang = next(gang for gang in snapshot.waiting if gang.name == name)
    smallest = [replace(demand, requested=demand.minimum) for demand in gang.demands]
    nodes = Inventory.of(snapshot.nodes)
    short = _first_short(smallest, nodes)
    free = add_resources(
        {name: max(0, amount) for name, amount in _free(short, node).items()} for node in _eligible_nodes(short, nodes)
    )
    needed = add_resources(
        {name: amount * demand.minimum for name, amount in demand.resources.items()} for demand in smallest
    )
    explanation = WaitExplanation(
        fits_now=_fits(smallest, nodes),
        type=short.type,
        resources=short.resources,
        minimum=short.minimum,
        lacking=shortage(needed, free),
        nodes=_nearest(short, nodes),
        ineligible_nodes=sum(node.name not in short.eligible_nodes for node in [*nodes, *snapshot.unavailable_nodes]),
    )
    if explanation.fits_now:
        return explanation
    return replace(
        explanation,
        fitting_size=_largest_fitting(smallest, short, nodes),
        gangs_to_end=_gangs_to_end(smallest, snapshot.running, nodes),
        gangs_to_shrink=_gangs_to_shrink(smallest, snapshot.running, nodes),
        fits_after_termination=_fits(smallest, [_after_terminating(node) for node in nodes]),
        nodes_to_return=_nodes_to_return(smallest, nodes, snapshot.unavailable_nodes),
    )


def _fits(demands: Sequence[Demand], nodes: Iterable[NodeState]) -> bool:
    return is_feasible(demands, NodeLedger.of_free(nodes))


def _first_short(demands: Sequence[Demand], nodes: Inventory) -> Demand:
    """The first demand that does not fit together with those before it; the last if all do."""
    for index, demand in enumerate(demands):
        if demand.minimum and not _fits(demands[: index + 1], nodes):
            return demand
    return demands[-1]


def _eligible_nodes(demand: Demand, nodes: Iterable[NodeState]) -> Sequence[NodeState]:
    return [node for node in nodes if node.name in demand.eligible_nodes]


def _nearest(demand: Demand, nodes: Inventory) -> Sequence[NodeShortage]:
    """Sort the eligible nodes: those with most room first, then those that lack least."""
    ledger = NodeLedger.of_free(nodes)
    room = ledger.room(ledger.requests.of(demand))
    accounts = [
        _node_shortage(demand, node, int(count))
        for node, count in zip(nodes, room, strict=True)
        if node.name in demand.eligible_nodes
    ]
    return sorted(accounts, key=lambda one: (-one.room, len(one.lacking), sum(one.lacking.values()), one.name))[
        :MAX_NODES
    ]


def _node_shortage(demand: Demand, node: NodeState, room: int) -> NodeShortage:
    free, capacity = _requested_only(demand, _free(demand, node)), _requested_only(demand, node.capacity)
    lacking, gpus = shortage(demand.resources, free), _gpus(demand, node)
    if demand.share is not None and gpus is not None:
        of_gpu = gpus.lacking(demand.share)
        lacking = {**{name: amount for name, amount in lacking.items() if name != NVIDIA_GPU}, **of_gpu}
        if GPU_MEMORY in of_gpu:
            capacity[GPU_MEMORY] = gpus.memory
            free[GPU_MEMORY] = demand.share.memory_of(gpus.memory) - of_gpu[GPU_MEMORY]
    return NodeShortage(
        name=node.name,
        room=room,
        capacity=capacity,
        free=free,
        lacking=lacking,
        releasing=_requested_only(demand, with_fractions(node.releasing)),
        gpus=gpus,
        barred_by=""
        if room or lacking or gpus is None or demand.share is None
        else barring_text(demand.share.constraints),
    )


def _gpus(demand: Demand, node: NodeState) -> NodeGpus | None:
    return NodeGpus.of(node) if demand.resources.get(NVIDIA_GPU) else None


def _free(demand: Demand, node: NodeState) -> Resources:
    """What is free on a node, with the GPUs that such a replica can use."""
    gpus = _gpus(demand, node)
    if gpus is None:
        return node.free
    return {**node.free, NVIDIA_GPU: gpus.free if demand.share is None else gpus.left}


def _requested_only(demand: Demand, amounts: Resources) -> dict[str, int]:
    return {name: max(0, amounts.get(name, 0)) for name, amount in demand.resources.items() if amount > 0}


def _after_terminating(node: NodeState) -> NodeState:
    return replace(node, free=add_resources([node.free, node.releasing]), releasing={}) if node.releasing else node


def _largest_fitting(demands: Sequence[Demand], short: Demand, nodes: Inventory) -> int:
    """The largest number of the short replicas with which the gang fits; 0 if it does not even with one."""
    fits, too_many = 0, short.minimum
    while too_many - fits > 1:
        count = (fits + too_many) // 2
        tried = [replace(each, minimum=count, requested=count) if each.type == short.type else each for each in demands]
        fits, too_many = (count, too_many) if _fits(tried, nodes) else (fits, count)
    return fits


def _gangs_to_end(demands: Sequence[Demand], running: Sequence[RunningGang], nodes: Inventory) -> Sequence[str]:
    """The smallest single gang whose end is enough; otherwise the largest gangs together, as few as are enough."""
    eligible = frozenset().union(*(demand.eligible_nodes for demand in demands))
    holding = [(gang, held) for gang in running for held in [allocation_by_node(gang, nodes)] if held.keys() & eligible]
    by_size = sorted(holding, key=lambda largest: (len(largest[0].nodes), largest[0].name))
    for gang, held in by_size[:MAX_TRIED]:
        if _fits(demands, _with_freed([held], nodes)):
            return [gang.name]
    chosen: list[tuple[RunningGang, Mapping[str, Resources]]] = []
    for largest in by_size[: -MAX_GANGS_TO_END - 1 : -1]:
        chosen.append(largest)
        if _fits(demands, _with_freed([held for _, held in chosen], nodes)):
            return [gang.name for gang, _ in chosen]
    return ()


def _gangs_to_shrink(demands: Sequence[Demand], running: Sequence[RunningGang], nodes: Inventory) -> Sequence[str]:
    """A single elastic gang that is enough, otherwise all of them; empty if these are too many to name."""
    reclaimable = [
        (gang.name, held) for gang in running if gang.is_elastic for held in [_above_minimum(gang, nodes)] if held
    ]
    for name, held in reclaimable[:MAX_TRIED]:
        if _fits(demands, _with_freed([held], nodes)):
            return [name]
    is_enough = len(reclaimable) <= MAX_GANGS_TO_END and _fits(
        demands, _with_freed([held for _, held in reclaimable], nodes)
    )
    return [name for name, _ in reclaimable] if is_enough else ()


def _above_minimum(gang: RunningGang, nodes: Inventory) -> Mapping[str, Resources]:
    kept = {demand.type: demand.minimum for demand in gang.demands}
    above: dict[Replica, str] = {}
    for replica in sorted(gang.nodes):
        if kept.get(replica.type, 0) > 0:
            kept[replica.type] -= 1
        else:
            above[replica] = gang.nodes[replica]
    return allocation_by_node(replace(gang, nodes=above), nodes)


def _with_freed(freed_by_gang: Sequence[Mapping[str, Resources]], nodes: Inventory) -> Inventory:
    freed: dict[str, NodeState] = {}
    for held in freed_by_gang:
        for name, amounts in held.items():
            if name in nodes.row_of:
                node = freed.get(name, nodes.states[nodes.row_of[name]])
                freed[name] = replace(node, free=add_resources([node.free, amounts]))
    return nodes.with_states(freed.values())


def _nodes_to_return(demands: Sequence[Demand], nodes: Inventory, away: Sequence[NodeState]) -> Sequence[str]:
    """A single node that is enough, otherwise all of them; empty if they are not enough."""
    tried = [[node] for node in away[:MAX_TRIED]] + ([list(away)] if len(away) > 1 else [])
    for candidates in tried:
        if _fits(demands, [*nodes, *candidates]):
            return [node.name for node in candidates]
    return ()
