"""The scheduling rules that an administrator sets. Times are in seconds."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field

from tarragon.base.resources import Resources

POLICY_NAMES = ("fifo", "backfill", "dragon", "elastic")
"""The names of `policies.POLICIES`, kept here because `--help` lists them and importing the policies is slow."""
DEFAULT_POLICY = "elastic"

_LONGEST_SECONDS = 100 * 365 * 86400.0
"""Longer durations mean never. The bound keeps deadlines within the range of `datetime`."""


def bounded_timedelta(seconds: float) -> dt.timedelta:
    """Convert seconds to a duration of at most 100 years."""
    return dt.timedelta(seconds=min(seconds, _LONGEST_SECONDS))


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRules:
    """The share and quota of one namespace's jobs."""

    weight: float = 1.0
    """The share of contended resources, relative to other queues."""
    quota: Resources = field(default_factory=dict)
    """The most that the queue may hold, in thousandths. Resources that are not listed are unlimited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingRules:
    """The rules of scheduling. Defaults are those of DRAGON's README where it gives any."""

    queues: Mapping[str, QueueRules] = field(default_factory=dict)
    """The queue of each namespace; one that is not listed has a weight of 1 and no quota."""
    is_fair_share: bool = False
    """Whether, among gangs of equal priority, the namespace with the lowest weighted share goes first."""
    is_preemption_enabled: bool = True
    """Whether waiting gangs may preempt gangs of lower priority."""
    starvation_seconds: float = 30.0
    """After this wait a gang counts as starving: others shrink for it."""
    overdue_seconds: float = 86400.0
    """After this wait nothing more may pass a gang for good: nodes and quota are reserved for it. Earlier reservations
    cost all others more than they save: on Pollux' rigid jobs, after 30 s they make the mean job 2.3 times as long, at
    twice the load still by 31 % after 12 hours, and the longest wait hardly shorter. After a day they cost nothing.
    """
    idle_seconds: float = 60.0
    """How long nothing may have started or been resized before gangs grow."""
    cool_down_seconds: float = 60.0
    """How long a gang keeps a new size before it grows on its own."""
