"""A snapshot of the cluster as policies see it: nodes with their capacity, gangs with their demands."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from operator import attrgetter

from tarragon.base.resources import Resources
from tarragon.job.model import Replica, ReplicaType
from tarragon.scheduling.api.gpu_shares import VgpuShare
from tarragon.scheduling.api.rules import SchedulingRules
from tarragon.scheduling.api.work import WorkEstimate


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """The `capacity` of a node (all that gangs can ever get there) and its `free` resources (not allocated now), in
    thousandths.

    Where GPUs may be shared, `capacity` names the shares of the vGPUs, with zeros, and the memory of each GPU; `free`
    has what is held of vGPUs as negative amounts. The GPUs of vGPUs count as free in `free`.
    """

    name: str
    capacity: Resources
    free: Resources
    releasing: Resources = field(default_factory=dict)
    """Resources held by terminating pods: not free yet, but nothing else has to be preempted to obtain them."""
    unavailable_reason: str = ""
    """Why the node accepts no pods for now, as `is not ready`; empty if it does."""
    topology: tuple[str, ...] = ()
    """The node's topology domains from wide to narrow, as (zone, rack). Nodes that share more of them are nearer."""


class DomainMap(Mapping[str, str]):
    """The domain of each node, as its zone. Constraints on the same domains share one object, which is cheap to hash:
    two objects are never equal.
    """

    __slots__ = ("_domains",)

    def __init__(self, domains: Mapping[str, str]) -> None:
        self._domains = domains

    def __getitem__(self, node: str) -> str:
        return self._domains[node]

    def __iter__(self) -> Iterator[str]:
        return iter(self._domains)

    def __len__(self) -> int:
        return len(self._domains)

    __eq__ = object.__eq__
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TopologyConstraint:
    """A constraint on how replicas are spread over topology domains: topology spread, pod affinity or anti-affinity."""

    domain_of: DomainMap
    """A node without a domain cannot take replicas with this constraint."""
    counted_types: frozenset[ReplicaType]
    """The gang's replica types that count in a domain."""
    existing_pods: Mapping[str, int] = field(default_factory=dict)
    """The number of other pods that count, by domain."""
    max_skew: int | None = None
    """The highest allowed difference from the domain with the fewest (maxSkew). Domains without room are compared as
    well.
    """
    max_per_domain: int | None = None
    """The highest number in one domain, including the replica to be placed if its type counts. 1 is anti-affinity; 0
    keeps replicas of types that do not count out of domains with pods that do.
    """
    in_one_domain: bool = False
    """Whether all replicas must be in one domain (pod affinity)."""


@dataclass(frozen=True)
class PressuredNodes:
    """The nodes that are not eligible only while they are under pressure. Demands share one object, as each set is made
    once for all of them.
    """

    reasons: Mapping[str, str] = field(default_factory=dict)
    """The reason of each node: `has the taint …`."""

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(self.reasons)

    @cached_property
    def pairs(self) -> frozenset[tuple[str, str]]:
        """The nodes with their reasons. The set is compared with itself and hashed in no time."""
        return frozenset(self.reasons.items())


NO_PRESSURE = PressuredNodes()


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """A group of equal replicas: the resources that each needs, and the nodes on which it may run."""

    type: ReplicaType
    resources: Resources
    minimum: int
    """The gang cannot run with fewer replicas than this."""
    requested: int
    eligible_nodes: frozenset[str]
    decides: bool = False
    """Whether the job ends with one of these replicas. They are never given back."""
    is_anchor: bool = False
    """Whether the gang's other replicas should be near these."""
    maximum: int = 0
    """The size to which the gang may grow on idle resources. A value below `requested` means `requested`."""
    ineligible_reason: str = ""
    """If no node is eligible, the reasons that the nodes give."""
    pressured_nodes: PressuredNodes = field(default=NO_PRESSURE)
    affinity_reason: str = ""
    """How pods of others restrict the eligible nodes. This may change while the nodes stay the same."""
    node_scores: Mapping[str, int] = field(default_factory=dict)
    """The score of each node (preferred affinity, soft taints); nodes that are not listed score zero."""
    topology_constraints: tuple[TopologyConstraint, ...] = ()
    share: VgpuShare | None = None
    """The part of one GPU that each replica needs. `resources` has it as a fraction of a GPU, as quotas count it."""
    shape_key: Hashable = field(init=False, compare=False, repr=False)
    """A key that is equal for demands that always get the same answers, in the same words, from the same nodes."""

    @property
    def upper_limit(self) -> int:
        """The largest number of replicas that the gang may have."""
        return max(self.maximum, self.requested)

    def __post_init__(self) -> None:
        each = frozenset(self.resources.items())
        preference = frozenset(self.node_scores.items())
        counts, messages = (self.minimum, self.requested, self.maximum), (self.ineligible_reason, self.affinity_reason)
        role = (self.type, self.decides, self.is_anchor, self.share)
        nodes = (self.eligible_nodes, self.pressured_nodes.pairs)
        shape = (role, each, counts, nodes, preference, self.topology_constraints, messages)
        object.__setattr__(self, "shape_key", shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingGang:
    """A gang that waits for admission. Demands are in start order: anchors come before what is placed near them."""

    name: str
    queued_at: dt.datetime
    demands: Sequence[Demand]
    priority: int = 0
    """The value of its PriorityClass; higher goes first."""
    can_preempt: bool = True
    """Whether the gang may preempt gangs of lower priority."""
    queue: str = ""
    """The queue (namespace) whose share and quota the gang counts towards."""
    work: WorkEstimate | None = None
    """What is known about its work; None if nothing is."""

    @property
    def sort_key(self) -> tuple[int, dt.datetime, str]:
        """The sort key of the queue: higher priority first, then earlier queue time. Ties are broken by name, so that
        decisions are deterministic.
        """
        return -self.priority, self.queued_at, self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningGang:
    """An admitted gang: `nodes` holds the place of each replica, `demands` what the job asks for now."""

    name: str
    demands: Sequence[Demand]
    nodes: Mapping[Replica, str]
    is_elastic: bool
    """Whether the gang may grow."""
    resizes_by_restart: bool = False
    """Whether the gang restarts to resize. It then grows to all that it asks for or not at all, and never shrinks for
    others.
    """
    displaced: frozenset[Replica] = frozenset()
    """Replicas that need another node: theirs is gone, given up, or would not accept a new pod."""
    finished: frozenset[Replica] = frozenset()
    """Replicas that have finished. They hold no resources, so removing them frees nothing."""
    priority: int = 0
    queue: str = ""
    queued_at: dt.datetime | None = None
    """When the gang first asked for a place."""
    admitted_at: dt.datetime | None = None
    resized_at: dt.datetime | None = None
    """When its size last changed."""
    last_requested: Mapping[ReplicaType, int] = field(default_factory=dict)
    """The requested sizes at the time of the last size decision. A `requested` that differs is a new request of the
    user.
    """
    work: WorkEstimate | None = None
    """What is known about its work; None if nothing is."""

    @property
    def anchor_types(self) -> frozenset[ReplicaType]:
        """The types near which the gang's other replicas should be."""
        return frozenset(demand.type for demand in self.demands if demand.is_anchor)


_but_for_work = attrgetter(*(each.name for each in fields(RunningGang) if each.name != "work"))


def is_equal_but_for_work(before: RunningGang, gang: RunningGang) -> bool:
    """Whether nothing else has changed than what is known of the gang's work, which is something else in each cycle."""
    return bool(_but_for_work(before) == _but_for_work(gang))


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything that a policy may look at. Nodes are sorted by name."""

    now: dt.datetime
    nodes: Collection[NodeState]
    """An `Inventory`, or the node states to build one from."""
    waiting: Sequence[WaitingGang] = ()
    running: Sequence[RunningGang] = field(default=())
    unchangeable: Sequence[RunningGang] = field(default=())
    """Running gangs about which nothing is decided. What they hold counts towards the shares and quotas of their
    namespaces.
    """
    unavailable_nodes: Sequence[NodeState] = field(default=())
    """Nodes of the cluster that accept no pods for now."""
    rules: SchedulingRules = field(default_factory=SchedulingRules)
