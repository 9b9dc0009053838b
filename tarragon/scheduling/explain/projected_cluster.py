"""A cluster as it will be after decisions and ends of gangs, starting from a snapshot of it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tarragon.base.resources import Resources, add_resources, subtract
from tarragon.job.model import Replica, ReplicaType
from tarragon.job.places import node_of
from tarragon.scheduling.api.decision import Admit, Evict, Resize
from tarragon.scheduling.api.snapshot import Demand, NodeState, RunningGang, Snapshot, WaitingGang
from tarragon.scheduling.state.inventory import Inventory


class ProjectedCluster:
    """The nodes and the gangs of a snapshot, and what becomes of them. What a gang gives up is free at once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.nodes = Inventory.of(snapshot.nodes)
        self.waiting = {gang.name: gang for gang in snapshot.waiting}
        self.running = {gang.name: gang for gang in snapshot.running}

    @property
    def has_terminating(self) -> bool:
        """Whether terminating pods hold something."""
        return any(any(node.releasing.values()) for node in self.nodes)

    def end_terminating(self) -> None:
        """Free what terminating pods hold."""
        ended = [
            replace(node, free=add_resources([node.free, node.releasing]), releasing={})
            for node in self.nodes
            if any(node.releasing.values())
        ]
        self.nodes = self.nodes.with_states(ended)

    def apply(self, decision: Admit | Resize | Evict, at: dt.datetime) -> None:
        match decision:
            case Admit(name, nodes):
                self.running[name] = _running(self.waiting.pop(name), nodes, at)
                self._release(self.running[name], -1)
            case Resize(name, nodes):
                before = self.running[name]
                self._release(before, 1)
                self.running[name] = replace(
                    before, nodes=nodes, displaced=frozenset(), resized_at=at, last_requested=_requested(before.demands)
                )
                self._release(self.running[name], -1)
            case Evict(name):
                gang = self.running[name]
                self.end(name)
                self.waiting[name] = _waiting(gang)

    def end(self, name: str) -> None:
        """End a running gang."""
        self._release(self.running.pop(name), 1)

    def _release(self, gang: RunningGang, sign: int) -> None:
        """Give back what the gang holds to its nodes, or take it if `sign` is -1."""
        held = allocation_by_node(gang, self.nodes)
        states: list[NodeState] = []
        for name, amounts in held.items():
            row = self.nodes.row_of.get(name)
            if row is not None:
                node = self.nodes.states[row]
                states.append(replace(node, free=_adjusted(node.free, amounts, sign)))
        self.nodes = self.nodes.with_states(states)


def allocation_by_node(gang: RunningGang, nodes: Inventory) -> Mapping[str, Resources]:
    """What the gang holds, by node. Finished and displaced replicas hold nothing."""
    held: dict[str, Resources] = {}
    for place, amounts, number in nodes.held_by(gang.demands, gang.nodes, gang.finished | gang.displaced):
        node = node_of(place)
        held[node] = add_resources([held.get(node, {}), *[amounts] * number])
    return held


def _adjusted(free: Resources, amounts: Resources, sign: int) -> Resources:
    return add_resources([free, amounts]) if sign > 0 else subtract(free, amounts)


def _running(gang: WaitingGang, nodes: Mapping[Replica, str], at: dt.datetime) -> RunningGang:
    return RunningGang(
        name=gang.name,
        demands=gang.demands,
        nodes=nodes,
        is_elastic=any(demand.minimum < max(demand.requested, demand.maximum) for demand in gang.demands),
        priority=gang.priority,
        queue=gang.queue,
        queued_at=gang.queued_at,
        admitted_at=at,
        last_requested=_requested(gang.demands),
        work=gang.work,
    )


def _waiting(gang: RunningGang) -> WaitingGang:
    """Return an evicted gang to the queue, with the queue time that it had."""
    return WaitingGang(
        name=gang.name,
        queued_at=gang.queued_at or gang.admitted_at or dt.datetime.min.replace(tzinfo=dt.UTC),
        demands=gang.demands,
        priority=gang.priority,
        queue=gang.queue,
        work=gang.work,
    )


def _requested(demands: Sequence[Demand]) -> Mapping[ReplicaType, int]:
    return {demand.type: demand.requested for demand in demands}
