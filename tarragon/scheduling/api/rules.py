"""What whoever runs the cluster has decided about its scheduling. Times in seconds."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field

from tarragon.base.resources import Resources

POLICY_NAMES = ("fifo", "backfill", "dragon")
"""The policies of `policies.POLICIES`; importing them takes its time, and `--help` names them."""
DEFAULT_POLICY = "dragon"

_LONGEST = 100 * 365 * 86400.0
"""Whoever says more means never; a moment later than all calendars could not be told."""


def span(seconds: float) -> dt.timedelta:
    """So long, but no longer than anybody waits."""
    return dt.timedelta(seconds=min(seconds, _LONGEST))


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """The jobs of one namespace, together."""

    weight: float = 1.0
    """Its share of what is contended, beside the others'."""
    quota: Resources = field(default_factory=dict)
    """The most it may hold, in thousandths; a resource that is missing is not limited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The defaults are those of DRAGON's README, where it says any."""

    queues: Mapping[str, Queue] = field(default_factory=dict)
    """By namespace; one that is missing has a weight of 1 and no quota."""
    is_fair: bool = False
    """Whether, among gangs of one priority, the namespace goes first that holds least for its weight."""
    preempts: bool = True
    """Whether gangs of lower priority give way when a gang waits that may preempt."""
    aged: float = 30.0
    """After so long a wait others shrink for a gang, and nobody passes it for good."""
    idle: float = 60.0
    """Gangs grow when nothing has started, ended or been resized for so long."""
    cool_down: float = 60.0
    """A gang whose size was changed keeps it for so long."""
