"""The model of a training job: its replicas, its policies and the requested size. Every dialect decodes into it."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import NewType

from tarragon.kube.meta import JsonObject, Key, OwnerIdentity, group_of

ADOPT_ANNOTATION = "tarragon.dev/adopt"
"""`true` makes Tarragon take over the job, even if another operator manages its kind or has started the job."""
MANIFEST_ANNOTATION = "tarragon.dev/manifest"
"""Set on jobs whose spec the operator completes: the digests of the spec as submitted and as completed."""
RUNTIME_ID_ANNOTATION = "tarragon.dev/runtime-id"
"""`UID:ID` on jobs whose object names contain a runtime id: the id with which the job of this uid was started."""
GENERATION_ANNOTATION = "tarragon.dev/generation"
"""The API generation of a job: recognised once and recorded before any child exists, and authoritative from then on."""

OWN_MANAGED_BY = frozenset({"", "kubeflow.org/training-operator", "kubeflow.org/mpi-operator", "tarragon.dev/tarragon"})
"""Values of managedBy that Tarragon handles."""

ReplicaType = NewType("ReplicaType", str)
"""A type of replicas in its API's canonical spelling: `Worker`. In lower case it is part of object names and labels.

Each framework brings its own types. Use `parse_replica_type` for one that a user may have written.
"""

_REPLICA_TYPE = re.compile("[A-Za-z][A-Za-z0-9]{0,62}")


def is_replica_type(name: object) -> bool:
    """Whether this may be the name of a replica type of some framework."""
    return isinstance(name, str) and _REPLICA_TYPE.fullmatch(name) is not None


def parse_replica_type(name: object) -> ReplicaType:
    """Parse a type that was recorded in a status, which users can edit. Raises ValueError for anything else."""
    if not is_replica_type(name):
        raise ValueError(f"{name!r} is not a replica type")
    return ReplicaType(str(name))


def gang_name(kind: str, key: Key) -> str:
    """The name of a job's gang, also in messages. It contains the kind, because two kinds may use one name."""
    return f"{kind} {key}"


def parse_gang_name(name: str) -> tuple[str, Key]:
    """The kind and the key of the gang's job."""
    kind, _, key = name.partition(" ")
    return kind, Key(*key.split("/", 1))


class Decides(Enum):
    """Whether replica 0 of a type decides the result of its job."""

    NEVER = 0
    AS_CHIEF = 1
    WITHOUT_CHIEF = 2
    """Only in a job without a chief. With SuccessPolicy.ALL_WORKERS, all replicas of the type decide."""


class EndsAfterJob(Enum):
    """When the program of a replica ends by itself, once the replicas that decide have given the job its result."""

    SOON = auto()
    AFTER_LAST_CHECKPOINT = auto()
    """It has still to work on what the job wrote last, as an evaluator does."""
    NEVER = auto()
    """It serves the others until it is ended, as a parameter server does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRole:
    """What a framework states about one of its replica types."""

    decides: Decides = Decides.NEVER
    is_elastic: bool = False
    """Whether the elastic policy and `kubectl scale` are about these replicas."""
    is_anchor: bool = False
    """Whether the job's other replicas should be placed near these, as workers near their parameter servers."""
    restarts_after: ReplicaType | None = None
    """These replicas are created again only once all replicas of that type are ready, because their program can't wait
    for them. It manages by itself in an elastic job, whose replicas of that type come and go."""
    is_kept_for_logs: bool = False
    """Whether the pods of a finished job stay, whatever its cleanPodPolicy, because their logs are those of the job."""
    ends_after_job: EndsAfterJob = EndsAfterJob.SOON


class RestartPolicy(StrEnum):
    """What happens after a replica fails. EXIT_CODE consults the dialect's table of exit codes."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"
    EXIT_CODE = "ExitCode"

    @property
    def pod_restart_policy(self) -> str:
        """The restartPolicy of the pods. Kubernetes has no ExitCode: such a pod ends, and the operator replaces it."""
        return "Never" if self is RestartPolicy.EXIT_CODE else self.value


class CleanPodPolicy(StrEnum):
    """Which pods are deleted once the job has finished."""

    ALL = "All"
    RUNNING = "Running"
    NONE = "None"


class SuccessPolicy(StrEnum):
    """When a job without a chief succeeds: once worker 0 has succeeded, or once all workers have."""

    WORKER_ZERO = ""
    ALL_WORKERS = "AllWorkers"


@dataclass(frozen=True, slots=True, order=True)
class Replica:
    """One replica of a job. The index is 0-based and counts within the type."""

    type: ReplicaType
    index: int

    def __str__(self) -> str:
        return f"{self.type.lower()}-{self.index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSpec:
    """All replicas of one type. `replicas` is the requested number; the actual size is in the admission."""

    type: ReplicaType
    role: ReplicaRole
    replicas: int
    restart_policy: RestartPolicy
    template: JsonObject
    """The PodTemplateSpec as the user wrote it, without nulls. Treat it as immutable."""
    port: int = 0
    """The port at which other replicas reach these; 0 for none."""
    pod_restart_policy_override: str = ""
    """The restartPolicy of the pods where it does not follow from `restart_policy`, as before v1alpha2."""
    may_fail: bool = False
    """Whether the job goes on when one of these replicas fails that does not decide it."""
    starts_after: ReplicaType | None = None
    """These replicas are created once all replicas of that type are ready, because their program needs them at once."""
    runs_provided_program: bool = False
    """Whether the operator provides the program and the command, because the manifest has no template for these."""
    field_path: str = ""
    """The path of the group in the manifest, in the user's spelling. Problems quote it."""

    @property
    def pod_restart_policy(self) -> str:
        return self.pod_restart_policy_override or self.restart_policy.pod_restart_policy


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingPolicy:
    """What a job requests from a gang scheduler. None or empty means that nothing is requested."""

    queue: str = ""
    priority_class: str = ""
    min_available: int | None = None
    min_resources: Mapping[str, str | int | float] = field(default_factory=dict)
    schedule_timeout_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPolicy:
    """Limits and clean-up of the whole job. Times are in seconds; None means no limit."""

    clean_pod_policy: CleanPodPolicy
    ttl_seconds_after_finished: int | None = None
    active_deadline_seconds: int | None = None
    backoff_limit: int | None = None
    suspend: bool = False
    managed_by: str = ""
    """The controller that manages the job; empty if the manifest names none."""
    scheduling_policy: SchedulingPolicy = field(default_factory=SchedulingPolicy)


@dataclass(frozen=True, slots=True)
class ElasticPolicy:
    """The number of workers that a job may run with, `min_replicas` and `max_replicas` included."""

    min_replicas: int
    max_replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorBoardSpec:
    """A TensorBoard that runs beside the job. mlkube.io has a field for it; later generations use annotations."""

    log_dir: str
    image: str
    volumes: Sequence[JsonObject] = ()
    volume_mounts: Sequence[JsonObject] = ()
    service_type: str = "ClusterIP"
    ends_with_job: bool = False
    """By default TensorBoard serves until the job is deleted, because users look at results after training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """A training job, validated or not. `dialect` is the name of the dialect that decoded it."""

    kind: str
    api_version: str
    dialect: str
    key: Key
    uid: str
    creation_time: dt.datetime | None
    replica_specs: tuple[ReplicaSpec, ...]
    run_policy: RunPolicy
    success_policy: SuccessPolicy = SuccessPolicy.WORKER_ZERO
    restarts_together: bool = False
    """Whether programs of the kind can't go on without any one of their replicas. An annotation overrides it."""
    elastic_policy: ElasticPolicy | None = None
    runtime_id: str = ""
    """Part of the object names in generations where they don't consist of the job's name; empty in all others."""
    chief_restart_policy: RestartPolicy | None = None
    """The restart policy of the chief, where it differs from the policy of the chief's replica type."""
    named_chief: Replica | None = None
    """The replica that the manifest names as the chief, where that is not the default one."""
    tensorboard: TensorBoardSpec | None = None
    options: object | None = None
    """What only the kind's own framework understands: an immutable value that its decoder sets."""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def owner_identity(self) -> OwnerIdentity:
        """The identity of the job in the controller reference of its pods, services and other children."""
        return OwnerIdentity(
            namespace=self.key.namespace,
            group=group_of(self.api_version),
            kind=self.kind,
            name=self.key.name,
            uid=self.uid,
        )

    def replica_spec(self, kind: ReplicaType) -> ReplicaSpec | None:
        for group in self.replica_specs:  # a loop, not a generator: this is the hottest function of the model
            if group.type == kind:
                return group
        return None

    @property
    def chief(self) -> Replica | None:
        """The replica that decides the job: the named one, else replica 0 of the type that does."""
        if self.named_chief is not None:
            return self.named_chief
        for decides in (Decides.AS_CHIEF, Decides.WITHOUT_CHIEF):
            for group in self.replica_specs:
                if group.role.decides is decides and group.replicas > 0:
                    return Replica(group.type, 0)
        return None

    @property
    def has_chief(self) -> bool:
        """Whether a chief is named or has a type of its own; False where another replica decides for lack of one."""
        return self.named_chief is not None or any(
            group.role.decides is Decides.AS_CHIEF and group.replicas > 0 for group in self.replica_specs
        )

    @property
    def elastic_group(self) -> ReplicaSpec | None:
        """The replicas that the elastic policy and `kubectl scale` are about, whether or not the job is elastic."""
        return next((group for group in self.replica_specs if group.role.is_elastic), None)

    def is_elastic_type(self, kind: ReplicaType) -> bool:
        """Whether the job is elastic, and the number of these replicas is what may change."""
        group = self.elastic_group if self.elastic_policy is not None else None
        return group is not None and group.type == kind

    def restart_policy_of(self, replica: Replica) -> RestartPolicy:
        """What happens after this replica fails."""
        if self.chief_restart_policy is not None and replica == self.chief:
            return self.chief_restart_policy
        group = self.replica_spec(replica.type)
        return group.restart_policy if group is not None else RestartPolicy.NEVER

    def requested_size(self) -> Mapping[ReplicaType, int]:
        """The number of replicas of each type that the user requested."""
        return {group.type: group.replicas for group in self.replica_specs}

    def replicas_of_size(self, size: Mapping[ReplicaType, int]) -> Iterator[Replica]:
        """All replicas of a gang of that size, by group and index."""
        for group in self.replica_specs:
            for index in range(size.get(group.type, 0)):
                yield Replica(group.type, index)
