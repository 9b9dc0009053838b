"""What each node has, what of it is free, and what will be soon: a table that is kept, row by row, from the caches."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tarragon.base.resources import CPU, Resources, minus, total
from tarragon.kube.core import Node
from tarragon.kube.meta import Key
from tarragon.operator.informers.informers import World
from tarragon.operator.informers.usage import Sums, Usage
from tarragon.operator.scheduler.snapshot.reservations import Reservations
from tarragon.plan.nodes.capacity import ONE_PORT, node_capacity
from tarragon.plan.nodes.predicates import away
from tarragon.scheduling.api.snapshot import NodeState
from tarragon.scheduling.state.inventory import Inventory

OVERCOMMIT_ANNOTATION = "tarragon.dev/overcommit"
"""On a node: the resources (`cpu`) whose requests are shares there, not amounts."""
HOST_PORTS = "hostPorts"
"""Among them: pods of such a node never collide in a port, as each gets one of its own."""
UNBOUNDED = 10**15

ZONE = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
RACK = ("topology.kubernetes.io/rack", "cloud.provider.com/topology-rack")
LEVELS = (ZONE, RACK)
"""Labels by which nodes stand together, from wide to narrow; of those that mean the same, the first that is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offer:
    """What a node has, whatever is held there."""

    capacity: Resources
    away: str
    domains: tuple[str, ...]


class NodeStates:
    """Heartbeats change nothing here; a pod that comes or goes, its node's row."""

    def __init__(
        self, world: World, usage: Usage, reservations: Reservations, levels: Sequence[Sequence[str]] = LEVELS
    ) -> None:
        self._nodes = world.nodes.objects
        self._held = (usage.held, reservations.held)
        self._releasing = (usage.ending, reservations.releasing)
        self._levels = levels
        self._offers: dict[str, _Offer] = {}
        self._ports: frozenset[str] = frozenset()
        self._away: dict[str, NodeState] = {}
        self._table: Inventory | None = None
        self._changed: set[str] = set()
        world.nodes.subscribe(self._node_changed)

    def know_ports(self, ports: frozenset[str]) -> None:
        """Of the node itself, that somebody asks for: of all others no node need say that it has them."""
        if not ports <= self._ports:
            self._ports |= ports
            self._table = None
            self._offers.clear()
            self._away.clear()

    def table(self) -> Inventory:
        """Of the nodes that take somebody, sorted by name."""
        touched = {node for sums in (*self._held, *self._releasing) for node in sums.touched()}
        changed, self._changed = self._changed, set()
        self._read(changed)
        if self._table is None:
            self._table = Inventory.of(self._state(name) for name in sorted(self._offers) if name not in self._away)
        else:
            rows = (touched | changed) & self._table.row_of.keys()
            self._table = self._table.changed(self._state(name) for name in sorted(rows))
        return self._table

    def away(self) -> Sequence[NodeState]:
        """The others, as they would be without anybody on them. To be asked after `table`."""
        return [self._away[name] for name in sorted(self._away)]

    def less(self, promised: Sums) -> Inventory:
        """The table as it will be once this is reserved, too. To be asked after `table`."""
        table = self.table()
        states = (table.states[table.row_of[node]] for node in sorted(promised.touched()) if node in table.row_of)
        return table.changed(replace(state, free=minus(state.free, promised.on(state.name))) for state in states)

    def _read(self, changed: Collection[str]) -> None:
        """Of nodes that changed, and of all where nothing is known."""
        names = changed if self._offers else {key.name for key in self._nodes}
        for name in names:
            node = self._nodes.get(Key("", name))
            was_there = name in self._offers and name not in self._away
            self._offers.pop(name, None)
            self._away.pop(name, None)
            if node is not None:
                offer = self._offers[name] = self._offer(node)
                if offer.away:
                    self._away[name] = NodeState(
                        name=name, capacity=offer.capacity, free=offer.capacity, away=offer.away, domains=offer.domains
                    )
            if was_there != (name in self._offers and name not in self._away):
                self._table = None

    def _offer(self, node: Node) -> _Offer:
        return _Offer(capacity=capacity(node, self._ports), away=away(node), domains=domains(node, self._levels))

    def _state(self, name: str) -> NodeState:
        offer = self._offers[name]
        free: Resources = offer.capacity
        for sums in self._held:
            free = minus(free, sums.on(name))
        releasing = total(sums.on(name) for sums in self._releasing)
        return NodeState(
            name=name,
            capacity=offer.capacity,
            free=free,
            releasing={resource: amount for resource, amount in releasing.items() if amount > 0},
            domains=offer.domains,
        )

    def _node_changed(self, key: Key, old: Node | None, new: Node | None) -> None:
        if old is None or new is None or _traits(old) != _traits(new):
            self._changed.add(key.name)


def capacity(node: Node, ports: Collection[str] = ()) -> Resources:
    """What gangs could get if nobody ran here."""
    shared = node.metadata.annotations.get(OVERCOMMIT_ANNOTATION, "").split(",")
    found = {**node_capacity(node), **dict.fromkeys(ports, UNBOUNDED if HOST_PORTS in shared else ONE_PORT)}
    return {**found, CPU: UNBOUNDED} if CPU in shared else found


def domains(node: Node, levels: Sequence[Sequence[str]] = LEVELS) -> tuple[str, ...]:
    """Where it stands. A level that it says nothing of is empty: nodes without zones are all of one."""
    labels: Mapping[str, str] = node.metadata.labels
    named = [next((labels[label] for label in level if label in labels), "") for level in levels]
    return tuple(named) if any(named) else ()


def _traits(node: Node) -> object:
    overcommit = node.metadata.annotations.get(OVERCOMMIT_ANNOTATION)
    amounts = node.status.allocatable, node.status.capacity
    return away(node), node.metadata.labels, overcommit, amounts
