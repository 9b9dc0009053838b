"""The cluster at one moment as a policy sees it: nodes as amounts, gangs as demands."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tarragon.base.resources import Resources
from tarragon.job.model import Replica, ReplicaType


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """`capacity` is what gangs could ever get here, `free` what nobody holds now; both in thousandths."""

    name: str
    capacity: Resources
    free: Resources
    away: str = ""
    """Why nobody gets a place here for the time being, as `is not ready`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Equal replicas: what each one needs and on which nodes it may run."""

    type: ReplicaType
    each: Resources
    minimum: int
    """Fewer than this are of no use: the gang waits."""
    wish: int
    eligible: frozenset[str]
    refused: str = ""
    """Where no node is eligible: what each of them says to that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """A job that waits. Demands come in start order: the parameter servers are placed before their workers."""

    name: str
    queued: dt.datetime
    demands: Sequence[Demand]

    @property
    def order(self) -> tuple[dt.datetime, str]:
        """First come, first served; the name decides between equals, so that equal input gives equal answers."""
        return self.queued, self.name


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything a policy may look at. Nodes are sorted by name."""

    now: dt.datetime
    nodes: Sequence[NodeState]
    waiting: Sequence[Gang] = ()
    running: Sequence[RunningGang] = field(default=())
    away: Sequence[NodeState] = field(default=())
    """Nodes that belong to the cluster and take nobody now."""
