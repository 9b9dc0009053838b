"""The status of a job, in one form for all generations; `tarragon.job.encoding` reads and writes it.

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
    """Why a gang has not been admitted. `code` is stable and documented; `message` is for humans."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """The backoff of a gang that lost its admission `count` times in a row because its pods could not be created.

    The gang is not admitted again before `after`.
    """

    count: int
    after: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedAdmission:
    """An admission that the scheduler did not write, and that was discarded: when, and why."""

    at: dt.datetime
    message: str


NOWHERE = ""
"""Stands for the node of a replica that has no node yet although its gang is already running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The admission of a gang: its size and placement. An admitted gang has a node in `nodes` for each replica."""

    queued: dt.datetime
    admitted: dt.datetime | None = None
    size: Mapping[ReplicaType, int] = field(default_factory=dict)
    nodes: Mapping[Replica, str] = field(default_factory=dict)
    wait: Wait | None = None
    """Why the gang is not admitted; for an admitted gang, why it does not grow."""
    retry: Retry | None = None
    resized: dt.datetime | None = None
    """When the gang was last resized; None if it still has its original size."""
    reason: str = ""
    """Why the gang was last resized."""
    wish: Mapping[ReplicaType, int] = field(default_factory=dict)
    """The requested number of replicas when the size was decided; empty means the same as `size`."""
    moves: tuple[dt.datetime, ...] = ()
    """The latest times at which replicas were assigned another node because a kubelet had rejected them."""
    refused: RefusedAdmission | None = None
    """The last admission found here that the scheduler did not write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """What keeps replicas from being created, bound or started, and since when. `message` quotes its source."""

    since: dt.datetime
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRecord:
    """How often a replica was restarted: with a new pod (`count`) or by the kubelet in the same pod (`in_place`).

    `uid` is the last pod that was counted; `in_place_of_uid` and `has_ended` keep it from being counted twice.
    """

    count: int = 0
    disruptions: int = 0
    """The part of `count` that the infrastructure caused; it does not count against backoffLimit."""
    in_place: int = 0
    uid: str = ""
    in_place_of_uid: int = 0
    """The part of `in_place` that belongs to the pod `uid`."""
    has_ended: bool = False
    """Whether `count` includes the end of the pod `uid`. If so, that pod is to be deleted and replaced."""
    exit_code: int | None = None
    reason: str = ""
    at: dt.datetime | None = None
    refused_by: str = ""
    """The node whose kubelet rejected the last pod that ended."""

    @property
    def total(self) -> int:
        return self.count + self.in_place

    @property
    def by_program(self) -> int:
        """The restarts that count against backoffLimit: all but disruptions."""
        return self.total - self.disruptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """The current incarnation of a gang whose replicas can only be recreated or resized all together."""

    round: int = 0
    """How often the whole gang was recreated."""
    size: Mapping[ReplicaType, int] = field(default_factory=dict)
    """The gang size that the replicas were configured with; empty while the job is not admitted."""
    is_whole: bool = False
    """Whether all pods have existed at once. From then on, a missing pod was lost and is not merely pending."""
    saves: bool = False
    """Whether the previous incarnation ended only because of a resize, so that its pods may save a checkpoint first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstFailure:
    """The replica that failed first. The record outlives the pod."""

    replica: Replica
    exit_code: int | None
    reason: str
    message: str
    at: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What the job ran: recorded when the job is first seen; only image digests are added later."""

    manifest: str
    """The digest of the spec as submitted."""
    operator: str
    """The version of the operator that first handled the job."""
    images: Mapping[str, str] = field(default_factory=dict)
    """Image names as in the manifest, each with its digest; space-separated digests if a tag has moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition as in v1alpha2 and later. `changed` is lastTransitionTime, `updated` is lastUpdateTime."""

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
    """Everything that must survive a restart of the operator. Decoding derives `phase` from the conditions."""

    phase: Phase = Phase.CREATED
    conditions: tuple[Condition, ...] = ()
    counts: Mapping[ReplicaType, ReplicaCounts] = field(default_factory=dict)
    started: dt.datetime | None = None
    completed: dt.datetime | None = None
    admission: Admission | None = None
    restarts: Mapping[Replica, RestartRecord] = field(default_factory=dict)
    finished: frozenset[Replica] = frozenset()
    """Replicas that succeeded. They are not restarted, even if their pods are gone."""
    ready: int = 0
    """The number of replicas that are running now."""
    obstacle: Obstacle | None = None
    """If the obstacle persists, the scheduler revokes the gang's admission."""
    first_failure: FirstFailure | None = None
    provenance: Provenance | None = None
    gang: Gang | None = None
    """Set only for jobs whose replicas are restarted or resized together."""

    size: Mapping[ReplicaType, int] = field(default_factory=dict)
    """The size last reported to the user; empty while the job is not admitted."""

    @property
    def is_admitted(self) -> bool:
        return self.admission is not None and self.admission.admitted is not None

    def condition(self, kind: str) -> Condition | None:
        return next((condition for condition in self.conditions if condition.type == kind), None)
