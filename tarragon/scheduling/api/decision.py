"""What a policy may say about a gang."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass

from tarragon.job.model import Replica

NEVER_FITS = "NeverFits"
"""The smallest form of the gang does not fit the cluster even when it is empty."""
NO_NODE_MAY = "no node may run"
"""How the words of a gang begin that never fits because of where it may run, not of how much it asks for."""
NODES_AWAY = "NodesAway"
"""It would fit if the nodes were back that take nobody now."""
INSUFFICIENT_RESOURCES = "InsufficientResources"
"""It would fit, but others hold what it needs."""
BEHIND_OTHERS = "BehindOthers"
"""A gang that goes first waits, and what this one needs is kept for it."""
RESOURCES_RELEASING = "ResourcesReleasing"
"""Its places are reserved; pods that have been told to end still hold them."""
QUOTA_EXCEEDED = "QueueQuotaExceeded"
"""Its namespace would hold more than its queue may."""
SCHEDULER_ERROR = "SchedulerError"
"""A bug of the scheduler's own keeps it from deciding about this gang; it goes on with the others."""
NEVER_WITHIN_QUOTA = "waiting does not help"
"""How the words of a gang begin that alone is larger than the quota of its queue."""
PREEMPTED = "Preempted"
"""It ran, and gave its places to a gang of higher priority."""


@dataclass(frozen=True, slots=True)
class Place:
    """Start the gang, whole: a node for every replica of its size."""

    gang: str
    nodes: Mapping[Replica, str]


@dataclass(frozen=True, slots=True)
class Resize:
    """Go on with these replicas instead: some more, or some fewer."""

    gang: str
    nodes: Mapping[Replica, str]
    reason: str = ""
    """In words that follow "2 -> 4 workers:", as `nodes are idle`."""


@dataclass(frozen=True, slots=True)
class Evict:
    """Give back all places and wait again."""

    gang: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Again:
    """Decide again at this moment, even if nothing happens until then."""

    at: dt.datetime


@dataclass(frozen=True, slots=True)
class Wait:
    """Not now. The code is one of the constants above."""

    gang: str
    code: str
    message: str


AboutGang = Place | Resize | Evict | Wait
Decision = AboutGang | Again
