"""What a job's status says, in one shape for all generations; `status.tarragon` is its compact encoding.

The scheduler owns `admission`; the reconciler owns everything else. Both write by merge patch with resourceVersion.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field

from tarragon.job.model import Replica, ReplicaType
from tarragon.job.phase import Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Why a gang has not started. `code` is stable and documented, the message is for people."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Who may run, and where. A gang is admitted whole: `nodes` then names a node for every replica of `size`."""

    queued: dt.datetime
    admitted: dt.datetime | None = None
    size: Mapping[ReplicaType, int] = field(default_factory=dict)
    nodes: Mapping[Replica, str] = field(default_factory=dict)
    wait: Wait | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRecord:
    """How often a replica was replaced, with its last end. `uid` is that pod's: one pod is never counted twice."""

    count: int
    uid: str
    exit_code: int | None
    reason: str
    at: dt.datetime
    disruptions: int = 0
    """Those of `count` that the infrastructure caused; they never count against backoffLimit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstFailure:
    """The replica that failed first, told so that it outlives its pod."""

    replica: Replica
    exit_code: int | None
    reason: str
    message: str
    at: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """As of the generations since v1alpha2. `changed` is lastTransitionTime, `updated` lastUpdateTime."""

    type: str
    is_true: bool
    reason: str
    message: str
    updated: dt.datetime
    changed: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaCounts:
    active: int = 0
    succeeded: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """Everything that has to survive the operator. `phase` is derived from the conditions when read."""

    phase: Phase = Phase.CREATED
    conditions: tuple[Condition, ...] = ()
    counts: Mapping[ReplicaType, ReplicaCounts] = field(default_factory=dict)
    started: dt.datetime | None = None
    completed: dt.datetime | None = None
    admission: Admission | None = None
    restarts: Mapping[Replica, RestartRecord] = field(default_factory=dict)
    finished: frozenset[Replica] = frozenset()
    """Replicas that ended well: they are not started again, even when their pods are gone."""
    ready: int = 0
    """Replicas that run at the moment."""
    first_failure: FirstFailure | None = None
