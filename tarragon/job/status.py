"""The status of a job, in one form for all generations; `tarragon.job.status_encoding` reads and writes it.

The scheduler owns `admission`; the reconciler owns everything else. Both write by merge patch with resourceVersion.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field

from tarragon.job.model import Replica, ReplicaType
from tarragon.job.phase import Phase
from tarragon.job.progress import Progress
from tarragon.job.work import JobWork


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitReason:
    """Why a gang has not been admitted. `code` is stable and documented; `message` is for humans."""

    code: str
    message: str
    cause: str = ""
    """A narrower code, where causes of one code have different remedies; otherwise empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionBackoff:
    """The backoff of a gang that lost its admission `attempts` times in a row because its pods could not be created.

    The gang is not admitted again before `not_before`.
    """

    attempts: int
    not_before: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardedAdmission:
    """An admission that the scheduler did not write, and that was discarded: when, and why."""

    at: dt.datetime
    message: str


UNASSIGNED = ""
"""Stands for the node of a replica that has no node yet although its gang is already running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The admission of a gang: its size and placement. An admitted gang has a place in `nodes` for each replica: the
    name of a node, or a vGPU of one; see `tarragon.job.places`.
    """

    queued_at: dt.datetime
    admitted_at: dt.datetime | None = None
    size: Mapping[ReplicaType, int] = field(default_factory=dict)
    nodes: Mapping[Replica, str] = field(default_factory=dict)
    wait: WaitReason | None = None
    """Why the gang is not admitted; for an admitted gang, why it does not grow."""
    backoff: AdmissionBackoff | None = None
    resized_at: dt.datetime | None = None
    """When the gang was last resized; None if it still has its original size."""
    resize_reason: str = ""
    """Why the gang was last resized."""
    requested_size: Mapping[ReplicaType, int] = field(default_factory=dict)
    """The requested number of replicas when the size was decided; empty means the same as `size`."""
    reassigned_at: tuple[dt.datetime, ...] = ()
    """The latest times at which replicas were assigned another node because a kubelet had rejected them."""
    discarded: DiscardedAdmission | None = None
    """The last admission found here that the scheduler did not write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """What keeps replicas from being created, bound or started, and since when. `message` quotes its source."""

    since: dt.datetime
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRecord:
    """How often a replica was restarted: with a new pod (`pod_restarts`) or by the kubelet in the same
    pod (`container_restarts`). A restart with a new pod is recorded when the old one has ended.

    `pod_uid` is the last pod that was counted; `container_restarts_of_pod` and `is_pod_end_counted` keep it from being
    counted twice.
    """

    pod_restarts: int = 0
    disruptions: int = 0
    """The part of `pod_restarts` that the infrastructure caused; it does not count against backoffLimit."""
    container_restarts: int = 0
    pod_uid: str = ""
    container_restarts_of_pod: int = 0
    """The part of `container_restarts` that belongs to the pod `pod_uid`."""
    is_pod_end_counted: bool = False
    """Whether the record includes the end of the pod `pod_uid`. If so, that pod is to be deleted and replaced."""
    exit_code: int | None = None
    reason: str = ""
    ended_at: dt.datetime | None = None
    """When the last end was recorded."""
    finished_at: dt.datetime | None = None
    """When the program itself had ended, by the clock of its node; None if the node did not say."""
    rejections: int = 0
    """How many pods were rejected by kubelets since the last restart. They are no restarts themselves."""
    rejected_by_node: str = ""
    """The node whose kubelet rejected the last pod that ended."""

    @property
    def total(self) -> int:
        return self.pod_restarts + self.container_restarts

    @property
    def counted_for_backoff_limit(self) -> int:
        """The restarts that count against backoffLimit: all but disruptions."""
        return self.total - self.disruptions


@dataclass(frozen=True, slots=True, kw_only=True)
class GangRound:
    """The current round of a gang whose replicas can only be recreated or resized all together."""

    number: int = 0
    """How often the whole gang was recreated."""
    size: Mapping[ReplicaType, int] = field(default_factory=dict)
    """The gang size that the replicas were configured with; empty while the job is not admitted."""
    was_complete: bool = False
    """Whether all pods have existed at once. From then on, a missing pod was lost and is not merely pending."""
    may_checkpoint: bool = False
    """Whether the previous round ended only because of a resize, so that its pods may save a checkpoint first."""


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

    manifest_digest: str
    """The digest of the spec as submitted."""
    operator_version: str
    """The version of the operator that first handled the job."""
    image_digests: Mapping[str, str] = field(default_factory=dict)
    """Image names as in the manifest, each with its digest; space-separated digests if a tag has moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition as in v1alpha2 and later. `last_transition_time` is lastTransitionTime, `last_update_time` is
    lastUpdateTime.
    """

    type: str
    is_true: bool
    reason: str
    message: str
    last_update_time: dt.datetime
    last_transition_time: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    active: int = 0
    succeeded: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """Everything that must survive a restart of the operator. Decoding derives `phase` from the conditions."""

    phase: Phase = Phase.CREATED
    conditions: tuple[Condition, ...] = ()
    replica_statuses: Mapping[ReplicaType, ReplicaStatus] = field(default_factory=dict)
    start_time: dt.datetime | None = None
    completion_time: dt.datetime | None = None
    admission: Admission | None = None
    restarts: Mapping[Replica, RestartRecord] = field(default_factory=dict)
    succeeded_replicas: frozenset[Replica] = frozenset()
    """Replicas that succeeded. They are not restarted, even if their pods are gone."""
    running_replicas: int = 0
    """The number of replicas that are running now."""
    obstacle: Obstacle | None = None
    """If the obstacle persists, the scheduler revokes the gang's admission."""
    image_pull_errors: Mapping[ReplicaType, str] = field(default_factory=dict)
    """Why images can't be pulled, from kubelets' last attempts; kept while a kubelet backs off."""
    first_failure: FirstFailure | None = None
    provenance: Provenance | None = None
    gang_round: GangRound | None = None
    """Set only for jobs whose replicas are restarted or resized together."""
    progress: Progress | None = None
    """How far the training is. Whoever learns that writes it with `progress_patch`; the reconciler keeps it."""
    work: JobWork = field(default_factory=JobWork)
    """What was observed of the job's work. The scheduler estimates from it what is left."""
    reported_size: Mapping[ReplicaType, int] = field(default_factory=dict)
    """The size last reported to the user; empty while the job is not admitted."""

    @property
    def is_admitted(self) -> bool:
        return self.admission is not None and self.admission.admitted_at is not None

    def restart_count(self, replica: Replica) -> int:
        """How often the replica was restarted. The record has one more if the job ended instead of restarting it."""
        record = self.restarts.get(replica, RestartRecord())
        is_last_end_a_restart = record.is_pod_end_counted and not record.rejections
        return record.total - (is_last_end_a_restart and self.phase.is_final)

    @property
    def total_restarts(self) -> int:
        return sum(map(self.restart_count, self.restarts))

    def condition(self, kind: str) -> Condition | None:
        return next((condition for condition in self.conditions if condition.type == kind), None)
