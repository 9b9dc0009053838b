"""What a policy may say about a gang."""

from __future__ import annotations

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
"""A gang that came earlier waits, and this policy lets nobody pass."""


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


@dataclass(frozen=True, slots=True)
class Wait:
    """Not now. The code is one of the constants above."""

    gang: str
    code: str
    message: str


Decision = Place | Resize | Wait
