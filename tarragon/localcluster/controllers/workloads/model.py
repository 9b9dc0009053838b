"""The fields of workloads that their controllers read.

The API server has already set the defaults. Templates stay unparsed: they are copied into pods, and compared.
"""

from __future__ import annotations

from typing import Any, Protocol

from tarragon.kube.meta import ObjectMeta, PartialObject, Resource

Json = dict[str, Any]


class HasMetadata(Protocol):
    """Any API object."""

    @property
    def metadata(self) -> ObjectMeta: ...


class Owner(HasMetadata, Protocol):
    """An object that controls pods or replica sets."""

    @property
    def selector(self) -> Json:
        """A metav1.LabelSelector; an empty one selects nothing."""
        ...


# -------------------------------------------------------------------------------------------------------- replica sets


class ReplicaSetSpec(PartialObject, frozen=True):
    replicas: int = 1
    min_ready_seconds: int = 0
    selector: Json = {}
    template: Json = {}


class ReplicaSet(PartialObject, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ReplicaSetSpec = ReplicaSetSpec()
    status: Json = {}

    @property
    def selector(self) -> Json:
        return self.spec.selector

    @property
    def is_observed(self) -> bool:
        """Whether the controller has observed the current spec."""
        return int(self.status.get("observedGeneration") or 0) >= self.metadata.generation

    def count(self, field: str) -> int:
        return int(self.status.get(field) or 0)


# --------------------------------------------------------------------------------------------------------- deployments


class Rolling(PartialObject, frozen=True):
    max_unavailable: int | str = 0
    max_surge: int | str = 0


class Strategy(PartialObject, frozen=True):
    type: str = "RollingUpdate"
    rolling_update: Rolling = Rolling()


class DeploymentSpec(PartialObject, frozen=True):
    replicas: int = 1
    min_ready_seconds: int = 0
    revision_history_limit: int = 10
    progress_deadline_seconds: int = 600
    paused: bool = False
    selector: Json = {}
    strategy: Strategy = Strategy()
    template: Json = {}


class Deployment(PartialObject, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: DeploymentSpec = DeploymentSpec()
    status: Json = {}

    @property
    def selector(self) -> Json:
        return self.spec.selector


# ---------------------------------------------------------------------------------------------------------------- jobs


class JobSpec(PartialObject, frozen=True):
    """With `completions` None the Job is complete when one pod has succeeded and no other runs."""

    parallelism: int = 1
    completions: int | None = None
    active_deadline_seconds: int | None = None
    backoff_limit: int = 6
    backoff_limit_per_index: int | None = None
    max_failed_indexes: int | None = None
    ttl_seconds_after_finished: int | None = None
    completion_mode: str = "NonIndexed"
    suspend: bool = False
    pod_failure_policy: Json | None = None
    success_policy: Json | None = None
    pod_replacement_policy: str = "TerminatingOrFailed"
    managed_by: str = ""
    selector: Json = {}
    template: Json = {}

    @property
    def is_indexed(self) -> bool:
        return self.completion_mode == "Indexed"


class Job(PartialObject, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec = JobSpec()
    status: Json = {}

    @property
    def selector(self) -> Json:
        return self.spec.selector

    @property
    def is_finished(self) -> bool:
        return self.has("Complete") or self.has("Failed")

    def has(self, kind: str) -> bool:
        """Whether the condition of this type is true."""
        return self.condition(kind) is not None

    def condition(self, kind: str) -> Json | None:
        """The condition of this type, if it is true."""
        conditions: list[Json] = self.status.get("conditions") or []
        return next((each for each in conditions if each["type"] == kind and each["status"] == "True"), None)


def _apps(plural: str, kind: str, model: type[Any]) -> Resource[Any]:
    return Resource(group="apps", version="v1", plural=plural, kind=kind, model=model)


REPLICA_SETS: Resource[ReplicaSet] = _apps("replicasets", "ReplicaSet", ReplicaSet)
DEPLOYMENTS: Resource[Deployment] = _apps("deployments", "Deployment", Deployment)
JOBS: Resource[Job] = Resource(group="batch", version="v1", plural="jobs", kind="Job", model=Job)
