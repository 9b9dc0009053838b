"""A training job as the rest of the program sees it: replicas, policies, wish. Dialects read into it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from tarragon.kube.meta import JsonObject, Key, OwnerIdentity, group_of

ADOPT_ANNOTATION = "tarragon.dev/adopt"
"""`true` on a job gives it to us, whoever else keeps its kind or has begun it."""
MANIFEST_ANNOTATION = "tarragon.dev/manifest"
"""On jobs whose spec the operator completes: the digest as it was submitted, and as it was completed."""
RUNTIME_ID_ANNOTATION = "tarragon.dev/runtime-id"
"""`UID:ID` on jobs whose names have a runtime id in them: the id that the job of this uid was begun with."""
GENERATION_ANNOTATION = "tarragon.dev/generation"
"""The API generation of a job, recognised once and written before any child exists; afterwards only this counts."""


class ReplicaType(StrEnum):
    """What a replica does. The values are the canonical spellings of kubeflow.org/v1."""

    CHIEF = "Chief"
    MASTER = "Master"
    PS = "PS"
    WORKER = "Worker"
    EVALUATOR = "Evaluator"
    LAUNCHER = "Launcher"

    @property
    def word(self) -> str:
        """The lower-case form that names, labels and TF_CONFIG use."""
        return self.value.lower()


class RestartPolicy(StrEnum):
    """What happens when a replica ends badly. EXIT_CODE asks the dialect's table of exit codes."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"
    EXIT_CODE = "ExitCode"

    @property
    def of_pod(self) -> str:
        """What the pod is told: Kubernetes knows no ExitCode, so there a pod ends and is replaced."""
        return "Never" if self is RestartPolicy.EXIT_CODE else self.value


class CleanPodPolicy(StrEnum):
    """Which pods go when the job has ended."""

    ALL = "All"
    RUNNING = "Running"
    NONE = "None"


class SuccessPolicy(StrEnum):
    """When a job without a chief has succeeded: with worker 0, or with all workers."""

    WORKER_ZERO = ""
    ALL_WORKERS = "AllWorkers"


@dataclass(frozen=True, slots=True, order=True)
class Replica:
    """One member of the gang. Its index counts within its type, from 0."""

    type: ReplicaType
    index: int

    def __str__(self) -> str:
        return f"{self.type.word}-{self.index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaGroup:
    """All replicas of one type. `wish` is what the user asked for; the size comes from the admission."""

    type: ReplicaType
    wish: int
    restart_policy: RestartPolicy
    template: JsonObject
    """The PodTemplateSpec as the user wrote it, without nulls (treat as frozen)."""
    port: int = 2222
    pod_policy: str = ""
    """The restartPolicy of its pods where it does not follow from `restart_policy`, as before v1alpha2."""
    is_default_server: bool = False
    """Its user left it to us what runs: TensorFlow's standard server. The wiring says how it is started."""
    path: str = ""
    """Where in the manifest it is written, in the user's spelling: for Problems."""

    @property
    def restart_policy_of_pods(self) -> str:
        return self.pod_policy or self.restart_policy.of_pod


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingPolicy:
    """What a job asks of a gang scheduler; None and empty where it asks nothing."""

    queue: str = ""
    priority_class: str = ""
    min_available: int | None = None
    min_resources: Mapping[str, str | int | float] = field(default_factory=dict)
    timeout: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPolicy:
    """Limits and clean-up of the whole job. Times in seconds, None for no limit."""

    clean_pods: CleanPodPolicy
    ttl_after_finished: int | None = None
    active_deadline: int | None = None
    backoff_limit: int | None = None
    suspend: bool = False
    managed_by: str = ""
    """The controller that is to look after the job; empty for whoever finds it."""
    scheduling: SchedulingPolicy = field(default_factory=SchedulingPolicy)


@dataclass(frozen=True, slots=True)
class Elastic:
    """The workers a job may run with: never fewer than `minimum`, never more than `maximum`."""

    minimum: int
    maximum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorBoard:
    """A TensorBoard beside the job, as mlkube.io had it, and the annotations of later generations ask for it."""

    log_dir: str
    image: str
    volumes: Sequence[JsonObject] = ()
    mounts: Sequence[JsonObject] = ()
    service_type: str = "ClusterIP"
    ends_with_job: bool = False
    """Else it serves until the job is deleted: that is when people look at what was trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """A valid or not yet validated job. `generation` is the name of the dialect that read it."""

    kind: str
    api_version: str
    generation: str
    key: Key
    uid: str
    created: dt.datetime | None
    groups: tuple[ReplicaGroup, ...]
    run_policy: RunPolicy
    success_policy: SuccessPolicy = SuccessPolicy.WORKER_ZERO
    elastic: Elastic | None = None
    sparse_cluster: bool = False
    """enableDynamicWorker: every worker's TF_CONFIG names itself and the parameter servers only."""
    runtime_id: str = ""
    """What the names of v1alpha1 and mlkube.io have in them, so that a job made anew meets none of the old one's."""
    chief_policy: RestartPolicy | None = None
    """How the replica that decides is judged, where it is judged otherwise than those of its type."""
    decider: Replica | None = None
    """The replica that terminationPolicy named to decide the job, where it is not the usual one."""
    tensorboard: TensorBoard | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def as_owner(self) -> OwnerIdentity:
        """The identity by which the job's pods, services and others name it as their controller."""
        return OwnerIdentity(
            namespace=self.key.namespace,
            group=group_of(self.api_version),
            kind=self.kind,
            name=self.key.name,
            uid=self.uid,
        )

    def group(self, kind: ReplicaType) -> ReplicaGroup | None:
        for group in self.groups:  # a loop, not a generator: this is asked for more often than anything else
            if group.type is kind:
                return group
        return None

    @property
    def chief(self) -> Replica | None:
        """The replica that decides the job: the named one, a chief or master, else worker 0, else nobody."""
        if self.decider is not None:
            return self.decider
        for kind in (ReplicaType.CHIEF, ReplicaType.MASTER, ReplicaType.LAUNCHER, ReplicaType.WORKER):
            group = self.group(kind)
            if group is not None and group.wish > 0:
                return Replica(kind, 0)
        return None

    @property
    def has_chief(self) -> bool:
        """Whether one replica decides the job by name or by its type, not worker 0 for want of anybody else."""
        return self.decider is not None or (self.chief is not None and self.chief.type is not ReplicaType.WORKER)

    def policy_of(self, replica: Replica) -> RestartPolicy:
        """What happens when this one ends badly."""
        if self.chief_policy is not None and replica == self.chief:
            return self.chief_policy
        group = self.group(replica.type)
        return group.restart_policy if group is not None else RestartPolicy.NEVER

    def wished(self) -> Mapping[ReplicaType, int]:
        """How many replicas of each type the user asked for."""
        return {group.type: group.wish for group in self.groups}

    def replicas(self, size: Mapping[ReplicaType, int]) -> Iterator[Replica]:
        """Every replica of a gang of that size, group by group, in index order."""
        for group in self.groups:
            for index in range(size.get(group.type, 0)):
                yield Replica(group.type, index)
