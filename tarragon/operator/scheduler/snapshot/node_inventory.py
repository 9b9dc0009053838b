"""Maintains the snapshot's inventory of nodes (capacity, free, releasing) incrementally from the caches."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tarragon.base.gpu_constraints import mark_names
from tarragon.base.resources import (
    GPU_MEMORY,
    NVIDIA_GPU,
    Resources,
    add_resources,
    subtract,
    vgpu_memory,
    vgpu_share,
)
from tarragon.kube.core import Node
from tarragon.kube.meta import Key
from tarragon.kube.scheduling.hami import hami_gpus, node_gpu_memory
from tarragon.kube.scheduling.host_ports import ONE_PORT
from tarragon.kube.scheduling.node_gpu_sharing import GpuSharing, gpu_sharing
from tarragon.kube.scheduling.node_resources import (
    HOST_PORTS,
    OVERCOMMIT_ANNOTATION,
    allocatable_with_gpus,
    overcommitted_resources,
)
from tarragon.kube.scheduling.vgpu_requests import with_memory_parts, with_whole_gpus
from tarragon.operator.informers.informers import Informers
from tarragon.operator.informers.pod_usage import NodeSums, PodUsage
from tarragon.operator.scheduler.snapshot.reservations import Reservations
from tarragon.plan.nodes.feasibility import unavailable_reason
from tarragon.scheduling.api.snapshot import NodeState
from tarragon.scheduling.state.inventory import Inventory

UNBOUNDED = 10**15

ZONE = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
RACK = ("topology.kubernetes.io/rack", "cloud.provider.com/topology-rack")
TOPOLOGY_LEVELS = (ZONE, RACK)
"""Topology labels from wide to narrow. Each level has synonyms, of which the first one that a node has is used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offer:
    """A node's properties that do not depend on its pods."""

    capacity: Resources
    away: str
    domains: tuple[str, ...]


class NodeInventory:
    """The inventory of nodes. Heartbeats change nothing; a change of a pod updates its node's row."""

    def __init__(
        self,
        informers: Informers,
        usage: PodUsage,
        reservations: Reservations,
        levels: Sequence[Sequence[str]] = TOPOLOGY_LEVELS,
    ) -> None:
        self._nodes = informers.nodes.objects
        self._held = (usage.held, reservations.held)
        self._releasing = (usage.terminating, reservations.releasing)
        self._levels = levels
        self._offers: dict[str, _Offer] = {}
        self._ports: frozenset[str] = frozenset()
        self._are_gpus_shared = False
        self._anti_affinities: frozenset[str] | None = None
        """The values of anti-affinity on vGPUs; None if no pod has constraints on those with whom it shares one."""
        with_anchors = [GpuSharing.ANCHOR] if informers.settings.anchor_namespace else []
        self._sharing = {GpuSharing.KUBELET, GpuSharing.HAMI, *with_anchors}
        """How GPUs may be shared in this cluster."""
        self._unavailable: dict[str, NodeState] = {}
        self._table: Inventory | None = None
        self._changed: set[str] = set()
        informers.nodes.add_event_handler(self._node_changed)

    def add_host_ports(self, ports: frozenset[str]) -> None:
        """Add host ports that some job requests; ports nobody requests are left out of the capacities."""
        if not ports <= self._ports:
            self._ports |= ports
            self._read_anew()

    def share_gpus(self) -> None:
        """From now on, count the vGPUs of each node: until a job needs a part of a GPU, they would only cost time."""
        if not self._are_gpus_shared:
            self._are_gpus_shared = True
            self._read_anew()

    def mark_gpus(self, anti_affinities: frozenset[str]) -> None:
        """From now on, count the marks of vGPUs by which constraints are checked, for these values of anti-affinity."""
        if anti_affinities != self._anti_affinities:
            self._anti_affinities = anti_affinities
            self._read_anew()

    def _read_anew(self) -> None:
        self._table = None
        self._offers.clear()
        self._unavailable.clear()

    def inventory(self) -> Inventory:
        """The inventory of available nodes, sorted by name."""
        touched = {node for sums in (*self._held, *self._releasing) for node in sums.take_changed_nodes()}
        changed, self._changed = self._changed, set()
        self._read(changed)
        if self._table is None:
            self._table = Inventory.of(
                self._state(name) for name in sorted(self._offers) if name not in self._unavailable
            )
        else:
            rows = (touched | changed) & self._table.row_of.keys()
            self._table = self._table.with_states(self._state(name) for name in sorted(rows))
        return self._table

    def unavailable(self) -> Sequence[NodeState]:
        """Unavailable nodes, with their whole capacity as free. Must be called after `table`."""
        return [self._unavailable[name] for name in sorted(self._unavailable)]

    def inventory_minus(self, promised: NodeSums) -> Inventory:
        """The inventory after also reserving `promised`. Calls `table`."""
        table = self.inventory()
        states = (
            table.states[table.row_of[node]] for node in sorted(promised.take_changed_nodes()) if node in table.row_of
        )
        return table.with_states(
            replace(state, free=subtract(state.free, self._held_on(state.name, [promised]))) for state in states
        )

    def _read(self, changed: Collection[str]) -> None:
        """Update the offers of changed nodes, or of all nodes if there are none yet."""
        names = changed if self._offers else {key.name for key in self._nodes}
        for name in names:
            node = self._nodes.get(Key("", name))
            was_available = name in self._offers and name not in self._unavailable
            self._offers.pop(name, None)
            self._unavailable.pop(name, None)
            if node is not None:
                offer = self._offers[name] = self._offer(node)
                if offer.away:
                    self._unavailable[name] = NodeState(
                        name=name,
                        capacity=offer.capacity,
                        free=offer.capacity,
                        unavailable_reason=offer.away,
                        topology=offer.domains,
                    )
            if was_available != (name in self._offers and name not in self._unavailable):
                self._table = None

    def _offer(self, node: Node) -> _Offer:
        capacity = capacity_of(node, self._ports)
        return _Offer(
            capacity={**capacity, **vgpu_capacity(node, capacity), **self._marks(capacity)}
            if self._shares_gpus(node)
            else capacity,
            away=unavailable_reason(node),
            domains=topology_of(node, self._levels),
        )

    def _state(self, name: str) -> NodeState:
        offer = self._offers[name]
        all_held = self._held_on(name, self._held)
        held = with_whole_gpus(all_held, offer.capacity, all_held)
        free = subtract(offer.capacity, held) if held else offer.capacity
        releasing = with_whole_gpus(self._held_on(name, self._releasing), offer.capacity, all_held)
        return NodeState(
            name=name,
            capacity=offer.capacity,
            free=free,
            releasing={resource: amount for resource, amount in releasing.items() if amount > 0},
            topology=offer.domains,
        )

    def _held_on(self, name: str, sums: Iterable[NodeSums]) -> Resources:
        return with_memory_parts(
            add_resources(each.on(name) for each in sums), self._offers[name].capacity.get(GPU_MEMORY, 0)
        )

    def _marks(self, capacity: Resources) -> Resources:
        """The marks of a node's vGPUs, zero as their shares are."""
        if self._anti_affinities is None:
            return {}
        return dict.fromkeys(mark_names(capacity.get(NVIDIA_GPU, 0) // 1000, self._anti_affinities), 0)

    def _shares_gpus(self, node: Node) -> bool:
        return self._are_gpus_shared and gpu_sharing(node) in self._sharing

    def _node_changed(self, key: Key, old: Node | None, new: Node | None) -> None:
        if old is None or new is None or _traits(old) != _traits(new):
            self._changed.add(key.name)


def capacity_of(node: Node, ports: Collection[str] = ()) -> Resources:
    """The resources that gangs could use if the node were empty."""
    overcommitted = overcommitted_resources(node)
    amounts = {
        **allocatable_with_gpus(node),
        **dict.fromkeys(ports, UNBOUNDED if HOST_PORTS in overcommitted else ONE_PORT),
    }
    return {**amounts, **dict.fromkeys(overcommitted - {HOST_PORTS}, UNBOUNDED)}


def vgpu_capacity(node: Node, capacity: Resources) -> Resources:
    """What a node with GPUs has in addition where they may be shared. The shares are zero: see `NodeState`."""
    numbers = range(capacity.get(NVIDIA_GPU, 0) // 1000)
    shares = {name(number): 0 for name in (vgpu_share, vgpu_memory) for number in numbers}
    return {GPU_MEMORY: node_gpu_memory(node) * 1000, **shares} if numbers else {}


def topology_of(node: Node, levels: Sequence[Sequence[str]] = TOPOLOGY_LEVELS) -> tuple[str, ...]:
    """The node's topology domains. A missing level is empty, so nodes without zones share one zone."""
    labels: Mapping[str, str] = node.metadata.labels
    values = [next((labels[label] for label in level if label in labels), "") for level in levels]
    return tuple(values) if any(values) else ()


def _traits(node: Node) -> object:
    overcommit = node.metadata.annotations.get(OVERCOMMIT_ANNOTATION)
    amounts = node.status.allocatable, node.status.capacity
    gpus = gpu_sharing(node), hami_gpus(node)
    return unavailable_reason(node), node.metadata.labels, gpus, overcommit, amounts
