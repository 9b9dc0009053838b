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
class Retry:
    """A gang whose pods could not be made gave its places back, `count` times in a row; not before `after` again."""

    count: int
    after: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedAdmission:
    """An admission that somebody else wrote in the place of this one, and that counted for nothing: when, and why."""

    at: dt.datetime
    message: str


NOWHERE = ""
"""In place of a node: of a replica whose gang runs already, and that is to get its place yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Who may run, and where. A gang is admitted whole: `nodes` then names a node for every replica of `size`."""

    queued: dt.datetime
    admitted: dt.datetime | None = None
    size: Mapping[ReplicaType, int] = field(default_factory=dict)
    nodes: Mapping[Replica, str] = field(default_factory=dict)
    wait: Wait | None = None
    """Of an admitted gang: why it does not grow."""
    retry: Retry | None = None
    resized: dt.datetime | None = None
    """When the size was changed last; None as long as it is the one that was admitted."""
    reason: str = ""
    """Why the size is what it is, where it was changed."""
    wish: Mapping[ReplicaType, int] = field(default_factory=dict)
    """How many replicas were wished when the size was decided; where it is missing, as many as there are."""
    moves: tuple[dt.datetime, ...] = ()
    """When replicas got another node because the one they had did not take them: the last few times."""
    refused: RefusedAdmission | None = None
    """The last one that stood here and that the scheduler could not have decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """What keeps replicas from being made or bound since then, in the words of whoever does not let them."""

    since: dt.datetime
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRecord:
    """How often a replica was started again: by a new pod (`count`) or by the kubelet in the same one (`in_place`).

    `uid` is the pod that was looked at last; with `in_place_of_uid` and `has_ended` nothing of it is counted twice.
    """

    count: int = 0
    disruptions: int = 0
    """Those of `count` that the infrastructure caused; they never count against backoffLimit."""
    in_place: int = 0
    uid: str = ""
    in_place_of_uid: int = 0
    """Those of `in_place` that were of the pod `uid`."""
    has_ended: bool = False
    """Whether the end of the pod `uid` is in `count` already: it is to be deleted, and a new one to be made."""
    exit_code: int | None = None
    reason: str = ""
    at: dt.datetime | None = None
    refused_by: str = ""
    """The node whose kubelet did not take the pod that ended last."""

    @property
    def total(self) -> int:
        return self.count + self.in_place

    @property
    def by_program(self) -> int:
        """What backoffLimit counts."""
        return self.total - self.disruptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """Pods that were made together, of a job whose replicas can't be made anew, or become more, one by one."""

    round: int = 0
    """How often all of them were made anew."""
    size: Mapping[ReplicaType, int] = field(default_factory=dict)
    """What they were told of each other; empty while nobody may run."""
    is_whole: bool = False
    """Whether all have been there: from then on, one that is not there has gone."""
    saves: bool = False
    """Whether those of the round before could go on, but for a change of size: they may save first what they have done.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstFailure:
    """The replica that failed first, told so that it outlives its pod."""

    replica: Replica
    exit_code: int | None
    reason: str
    message: str
    at: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What it takes to know later what a job was: kept as it was at first, but for images that come."""

    manifest: str
    """The digest of the spec as it was submitted."""
    operator: str
    """The version that took the job."""
    images: Mapping[str, str] = field(default_factory=dict)
    """As the manifest names them, each with its digest; with several, between spaces, where a tag was moved."""


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
    obstacle: Obstacle | None = None
    """The scheduler takes the places of a gang away that does not get over it."""
    first_failure: FirstFailure | None = None
    provenance: Provenance | None = None
    gang: Gang | None = None
    """Of jobs where it matters who was made with whom."""

    size: Mapping[ReplicaType, int] = field(default_factory=dict)
    """What people were told it has; empty while nobody may run."""

    @property
    def is_admitted(self) -> bool:
        return self.admission is not None and self.admission.admitted is not None

    def condition(self, kind: str) -> Condition | None:
        return next((condition for condition in self.conditions if condition.type == kind), None)
