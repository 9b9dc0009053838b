"""The model of a training job: its replicas, its policies and the requested size. Every dialect decodes into it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from tarragon.kube.meta import JsonObject, Key, OwnerIdentity, group_of

ADOPT_ANNOTATION = "tarragon.dev/adopt"
"""`true` makes Tarragon take over the job, even if another operator manages its kind or has started the job."""
MANIFEST_ANNOTATION = "tarragon.dev/manifest"
"""Set on jobs whose spec the operator completes: the digests of the spec as submitted and as completed."""
RUNTIME_ID_ANNOTATION = "tarragon.dev/runtime-id"
"""`UID:ID` on jobs whose object names contain a runtime id: the id with which the job of this uid was started."""
GENERATION_ANNOTATION = "tarragon.dev/generation"
"""The API generation of a job: recognised once and recorded before any child exists, and authoritative from then on."""


class ReplicaType(StrEnum):
    """The role of a replica. The values are the canonical spellings of kubeflow.org/v1."""

    CHIEF = "Chief"
    MASTER = "Master"
    PS = "PS"
    WORKER = "Worker"
    EVALUATOR = "Evaluator"
    LAUNCHER = "Launcher"

    @property
    def lower_name(self) -> str:
        """The lower-case form, as used in object names, labels and TF_CONFIG."""
        return self.value.lower()


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
        return f"{self.type.lower_name}-{self.index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSpec:
    """All replicas of one type. `replicas` is the requested number; the actual size is in the admission."""

    type: ReplicaType
    replicas: int
    restart_policy: RestartPolicy
    template: JsonObject
    """The PodTemplateSpec as the user wrote it, without nulls. Treat it as immutable."""
    port: int = 2222
    pod_restart_policy_override: str = ""
    """The restartPolicy of the pods where it does not follow from `restart_policy`, as before v1alpha2."""
    is_default_server: bool = False
    """The manifest has no template for these replicas, so they run TensorFlow's standard server; see the wiring."""
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
    elastic_policy: ElasticPolicy | None = None
    enable_dynamic_worker: bool = False
    """enableDynamicWorker: each worker's TF_CONFIG lists only that worker and the parameter servers."""
    runtime_id: str = ""
    """Part of the object names of v1alpha1 and mlkube.io, so that a recreated job does not collide with the old one."""
    chief_restart_policy: RestartPolicy | None = None
    """The restart policy of the chief, where it differs from the policy of the chief's replica type."""
    named_chief: Replica | None = None
    """The replica that terminationPolicy names as the chief, where that is not the default one."""
    tensorboard: TensorBoardSpec | None = None
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
            if group.type is kind:
                return group
        return None

    @property
    def chief(self) -> Replica | None:
        """The replica that decides the job: the one in terminationPolicy, else chief, master, launcher or worker 0."""
        if self.named_chief is not None:
            return self.named_chief
        for kind in (ReplicaType.CHIEF, ReplicaType.MASTER, ReplicaType.LAUNCHER, ReplicaType.WORKER):
            group = self.replica_spec(kind)
            if group is not None and group.replicas > 0:
                return Replica(kind, 0)
        return None

    @property
    def has_chief(self) -> bool:
        """Whether a chief is named or has a type of its own; False where worker 0 decides for lack of one."""
        return self.named_chief is not None or (self.chief is not None and self.chief.type is not ReplicaType.WORKER)

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
