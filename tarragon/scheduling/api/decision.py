"""The decisions of a policy, and the codes that say why a gang waits."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from tarragon.job.model import Replica

NEVER_FITS = "NeverFits"
"""The gang would not fit at its minimum size even if the cluster were empty."""
NODES_UNAVAILABLE = "NodesAway"
"""The gang would fit if nodes that are unavailable now came back."""
INSUFFICIENT_RESOURCES = "InsufficientResources"
"""The gang would fit, but others hold resources that it needs."""
BEHIND_OTHERS = "BehindOthers"
"""A gang ahead of it waits, and either blocks the queue (fifo) or has the resources reserved that this one needs."""
RESOURCES_RELEASING = "ResourcesReleasing"
"""Resources are reserved for the gang, but terminating pods still hold them."""
QUOTA_EXCEEDED = "QueueQuotaExceeded"
"""The gang would bring its namespace above its quota."""
SCHEDULER_ERROR = "SchedulerError"
"""A bug in the scheduler prevents a decision about this gang; others are scheduled as usual."""
PREEMPTED = "Preempted"
"""The gang was running and gave its resources to a gang of higher priority."""


class WaitCause(StrEnum):
    """Narrower than a code, where it makes a difference for the remedy."""

    NO_ELIGIBLE_NODE = "NoEligibleNode"
    """The gang never fits because no node is eligible, rather than because it is too large."""
    LARGER_THAN_QUOTA = "LargerThanQuota"
    """The gang alone exceeds the quota of its queue, so that waiting does not help."""
    GPU_MEMORY_UNKNOWN = "GpuMemoryUnknown"
    """The gang needs memory of GPUs, and no node says how much its GPUs have."""


class ResizeReason(StrEnum):
    """Why a gang is resized, as text that is appended to one such as "2 -> 4 workers:"."""

    REQUESTED = "as requested"
    NODES_IDLE = "nodes are idle"
    NODE_UNAVAILABLE = "its node is no longer available"


def made_room_for(gang: str) -> str:
    """The reason of a gang that is shrunk for another one."""
    return f"made room for {gang}"


@dataclass(frozen=True, slots=True)
class Admit:
    """Start the gang, with a place for every replica of its size."""

    gang: str
    nodes: Mapping[Replica, str]


@dataclass(frozen=True, slots=True)
class Resize:
    """Continue with another set of replicas, either larger or smaller."""

    gang: str
    nodes: Mapping[Replica, str]
    reason: str = ""
    """A `ResizeReason`, or `made_room_for` another gang."""


@dataclass(frozen=True, slots=True)
class Evict:
    """Withdraw the gang's admission, so that it releases all its nodes and queues again."""

    gang: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class RequeueAt:
    """Run the next scheduling cycle at this moment, even if nothing changes until then."""

    at: dt.datetime


@dataclass(frozen=True, slots=True)
class Defer:
    """Leave the gang waiting (or running as it is). The code is one of the constants above, the cause a `WaitCause`."""

    gang: str
    code: str
    message: str
    cause: str = ""


GangDecision = Admit | Resize | Evict | Defer
Decision = GangDecision | RequeueAt
