"""The cluster at one moment as a policy sees it: nodes as amounts, gangs as demands."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from tarragon.base.resources import Resources
from tarragon.job.model import Replica, ReplicaType
from tarragon.scheduling.api.rules import Rules


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """`capacity` is what gangs could ever get here, `free` what nobody holds now; both in thousandths."""

    name: str
    capacity: Resources
    free: Resources
    releasing: Resources = field(default_factory=dict)
    """What pods still hold that have been told to end: nobody's yet, but no reason to take more from anybody."""
    away: str = ""
    """Why nobody gets a place here for the time being, as `is not ready`."""
    domains: tuple[str, ...] = ()
    """Where it stands, from wide to narrow, as (zone, rack); nodes that share more of them are nearer to each other."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spread:
    """How replicas are to lie over domains of nodes: topology spread, affinity and anti-affinity between pods."""

    domains: Mapping[str, str]
    """By node; one that is missing takes no replica that this is about."""
    counted: frozenset[ReplicaType]
    """The gang's own replicas that count in a domain."""
    already: Mapping[str, int] = field(default_factory=dict)
    """Other pods that count, by domain."""
    skew: int | None = None
    """At most so many more than in the emptiest of `domains` (maxSkew), also where that takes nobody."""
    most: int | None = None
    """At most so many in one domain, who is to be placed included if it counts itself; 1 is anti-affinity, and 0 keeps
    whoever does not count itself away from those that do."""
    together: bool = False
    """All in one domain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Equal replicas: what each one needs and on which nodes it may run."""

    type: ReplicaType
    each: Resources
    minimum: int
    """Fewer than this are of no use: the gang waits."""
    wish: int
    eligible: frozenset[str]
    maximum: int = 0
    """Where resources are idle it may grow to this many; less than the wish means the wish."""
    refused: str = ""
    """Where no node is eligible: what each of them says to that."""
    crowded: str = ""
    """Where pods of others narrow down where it may run: how much. That may change while the nodes stay as they are."""
    preference: Mapping[str, int] = field(default_factory=dict)
    """By node, what it is liked more for than others (preferred affinity, soft taints); missing is zero."""
    spreads: tuple[Spread, ...] = ()
    shape: Hashable = field(init=False, compare=False, repr=False)
    """Equal for demands that any nodes answer alike, in the same words."""

    @property
    def most(self) -> int:
        """The gang may never have more of them."""
        return max(self.maximum, self.wish)

    def __post_init__(self) -> None:
        each = frozenset(self.each.items())
        preference = frozenset(self.preference.items())
        numbers, words = (self.minimum, self.wish, self.maximum), (self.refused, self.crowded)
        shape = (self.type, each, numbers, self.eligible, preference, self.spreads, words)
        object.__setattr__(self, "shape", shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """A job that waits. Demands come in start order: the parameter servers are placed before their workers."""

    name: str
    queued: dt.datetime
    demands: Sequence[Demand]
    priority: int = 0
    """Of its PriorityClass; more goes first."""
    preempts: bool = True
    """Whether it may take the places of gangs of lower priority."""
    queue: str = ""
    """Whose share it counts to: its namespace."""

    @property
    def order(self) -> tuple[int, dt.datetime, str]:
        """The more urgent first, then who came first; the name decides between equals: equal input, equal answers."""
        return -self.priority, self.queued, self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningGang:
    """A job that was admitted: `nodes` is where each replica runs, `demands` what it wishes now."""

    name: str
    demands: Sequence[Demand]
    nodes: Mapping[Replica, str]
    elastic: bool
    """Whether it may grow."""
    whole: bool = False
    """It grows to all that it wishes, or not at all: that takes a restart."""
    homeless: frozenset[Replica] = frozenset()
    """Those whose node is no more: they need another place, or they never run again."""
    finished: frozenset[Replica] = frozenset()
    """Those that have done their part: they hold nothing, and taking them away frees nothing."""
    priority: int = 0
    queue: str = ""
    admitted: dt.datetime | None = None
    resized: dt.datetime | None = None
    """When its size was changed last."""
    wished: Mapping[ReplicaType, int] = field(default_factory=dict)
    """The wish when its size was decided last: one that has sunk or risen since is what somebody has just asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything a policy may look at. Nodes are sorted by name."""

    now: dt.datetime
    nodes: Collection[NodeState]
    """An `Inventory`, or what one is made of."""
    waiting: Sequence[Gang] = ()
    running: Sequence[RunningGang] = field(default=())
    beside: Sequence[RunningGang] = field(default=())
    """Those that run, too, and of which nothing is to be decided: what they hold counts for their namespace."""
    away: Sequence[NodeState] = field(default=())
    """Nodes that belong to the cluster and take nobody now."""
    rules: Rules = field(default_factory=Rules)
