"""The PodGroups, pod labels and annotations that other gang schedulers need for jobs whose pods name them.

They match field by field what the kubeflow.org/v1 training operators write, so that Volcano, or kube-scheduler with
scheduler-plugins, keeps working with existing jobs. `native` is Kubernetes' own PodGroup (1.37).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tarragon.base import quantity
from tarragon.base.errors import Problem
from tarragon.base.resources import PODS, Resources, add_resources
from tarragon.job.annotations import (
    ANNOTATIONS,
    NAME_DEFAULT_SCHEDULER,
    NATIVE_POD_GROUP,
    POD_GROUP_ANNOTATION,
    has_native_pod_group,
    restarts_as_gang,
)
from tarragon.job.model import Decides, Replica, ReplicaSpec, TrainingJob
from tarragon.kube.field_reader import join_path
from tarragon.kube.meta import Json, JsonObject, PartialObjectMetadata, Resource
from tarragon.kube.scheduling.host_ports import HOST_PORT_PREFIX
from tarragon.plan.nodes.replica_requests import group_request

SCHEDULING_GROUP = "schedulingGroup"
"""The field of a pod spec that names the pod's PodGroup, since Kubernetes 1.36."""


class PodGroup(PartialObjectMetadata, frozen=True):
    """A PodGroup of any scheduler, decoded as far as it is used."""

    spec: dict[str, Json] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroupKind:
    """The PodGroup resource of one scheduler, and what it needs on pods."""

    resource: Resource[PodGroup]
    spec: Callable[[TrainingJob, int], JsonObject]
    """Builds the group's spec from the job and the minimum number of pods."""
    annotations: Callable[[TrainingJob, Replica], Mapping[str, str]] = lambda _, __: {}
    labels: Callable[[TrainingJob, Replica], Mapping[str, str]] = lambda _, __: {}
    pod_spec: Callable[[TrainingJob], JsonObject] = lambda _: {}
    """Builds the fields of the pod spec that name the group."""
    served_by: str = ""
    """What makes the API server know the group; empty for what the scheduler's own installation brings."""
    immutable: frozenset[str] = frozenset()
    """The fields of the group's spec that the API server never lets change."""


def _volcano(job: TrainingJob, least: int) -> JsonObject:
    policy = job.run_policy.scheduling_policy
    priority = {"priorityClassName": policy.priority_class} if policy.priority_class else {}
    return {
        "minMember": least,
        "queue": policy.queue or "default",
        "minResources": _min_resources(job, least),
        **priority,
    }


def _plugins(job: TrainingJob, least: int) -> JsonObject:
    timeout = job.run_policy.scheduling_policy.schedule_timeout_seconds
    timeout_field = {} if timeout is None else {"scheduleTimeoutSeconds": timeout}
    return {"minMember": least, "minResources": _min_resources(job, least), **timeout_field}


def _native(job: TrainingJob, least: int) -> JsonObject:
    name = job.run_policy.scheduling_policy.priority_class
    priority = {"priorityClassName": name} if name else {}
    # Where one lost replica stops them all, preempting one alone would only waste what the others hold.
    disruption: JsonObject = {"disruptionMode": {"all": {}}} if restarts_as_gang(job) else {}
    return {"schedulingPolicy": {"gang": {"minCount": least}}, **priority, **disruption}


def _resource(group: str, version: str) -> Resource[PodGroup]:
    return Resource(group=group, version=version, plural="podgroups", kind="PodGroup", model=PodGroup)


POD_GROUP_KINDS: Mapping[str, PodGroupKind] = MappingProxyType(
    {
        "volcano": PodGroupKind(
            resource=_resource("scheduling.volcano.sh", "v1beta1"),
            spec=_volcano,
            annotations=lambda job, replica: {
                "scheduling.k8s.io/group-name": job.key.name,
                "volcano.sh/task-spec": replica.type.lower(),
            },
        ),
        "scheduler-plugins": PodGroupKind(
            resource=_resource("scheduling.x-k8s.io", "v1alpha1"),
            spec=_plugins,
            labels=lambda job, _: {"scheduling.x-k8s.io/pod-group": job.key.name},
        ),
        NATIVE_POD_GROUP: PodGroupKind(
            resource=_resource("scheduling.k8s.io", "v1beta1"),
            spec=_native,
            pod_spec=lambda job: {SCHEDULING_GROUP: {"podGroupName": job.key.name}},
            served_by="Kubernetes 1.37 with the feature gate GenericWorkload and "
            "--runtime-config=scheduling.k8s.io/v1beta1",
            immutable=frozenset({"priorityClassName", "disruptionMode"}),
        ),
    }
)

DEFAULT_KIND_BY_SCHEDULER: Mapping[str, str] = MappingProxyType(
    {"volcano": "volcano", "scheduler-plugins-scheduler": "scheduler-plugins"}
)
"""The schedulers' default names, with the kind of PodGroup that they need."""


def pod_group_kind(job: TrainingJob, by_scheduler: Mapping[str, str], own_scheduler: str) -> PodGroupKind | None:
    """Return the PodGroup kind of the one scheduler that all pods of the job name; None if it needs none.

    The job's annotation comes before `by_scheduler`. Tarragon's `own_scheduler` needs no PodGroups. Pods whose template
    names a PodGroup of Kubernetes stay in that one.
    """
    specs = [group.template.get("spec", {}) for group in job.replica_specs if group.replicas]
    (name, *others) = {spec.get("schedulerName", "") for spec in specs} or {""}
    if others or name in {"", own_scheduler}:
        return None
    kind = NATIVE_POD_GROUP if has_native_pod_group(job) else by_scheduler.get(name, "")
    if kind == NATIVE_POD_GROUP and any(SCHEDULING_GROUP in spec for spec in specs):
        return None
    return POD_GROUP_KINDS.get(kind)


def warn_about_ignored_pod_group(job: TrainingJob, own_scheduler: str) -> Iterator[Problem]:
    """Warn of the annotation of a job that names Tarragon's own scheduler. Only the operator knows that name."""
    names = {group.template.get("spec", {}).get("schedulerName", "") for group in job.replica_specs if group.replicas}
    if has_native_pod_group(job) and names == {own_scheduler}:
        message = f"has no effect: {own_scheduler} is Tarragon's own scheduler, which needs no PodGroup"
        yield Problem(join_path(ANNOTATIONS, POD_GROUP_ANNOTATION), message, NAME_DEFAULT_SCHEDULER)


def minimum_pods(job: TrainingJob) -> int:
    """Return the minimum number of pods: schedulingPolicy.minAvailable, else all pods.

    Of an elastic job's workers only min-instances count. Replicas that are created only once others are ready do not
    count: the group would never be complete.
    """
    requested = job.run_policy.scheduling_policy.min_available
    if requested is not None:
        return requested
    return sum(
        min(job.elastic_policy.min_replicas, group.replicas)
        if job.elastic_policy is not None and group.role.is_elastic
        else group.replicas
        for group in job.replica_specs
        if group.starts_after is None
    )


def with_pod_group(pod: JsonObject, kind: PodGroupKind, job: TrainingJob, replica: Replica) -> JsonObject:
    """Return the pod with the labels, annotations and fields that name its PodGroup."""
    metadata = pod["metadata"]
    metadata_fields = (("labels", kind.labels(job, replica)), ("annotations", kind.annotations(job, replica)))
    added = {
        metadata_field: {**metadata.get(metadata_field, {}), **added_entries}
        for metadata_field, added_entries in metadata_fields
        if added_entries
    }
    return {**pod, "metadata": {**metadata, **added}, "spec": {**pod["spec"], **kind.pod_spec(job)}}


def _min_resources(job: TrainingJob, count: int) -> JsonObject:
    """Return schedulingPolicy.minResources, else the requests of the first `count` pods in start order."""
    requested = job.run_policy.scheduling_policy.min_resources
    if requested:
        return dict(requested)
    together = (group for group in job.replica_specs if group.starts_after is None)
    groups = sorted(together, key=lambda group: (_start_order(group), group.type))
    requests = [_kubernetes_resources(group_request(group)) for group in groups for _ in range(group.replicas)]
    return {
        name: quantity.format_milli(amount)
        for name, amount in sorted(add_resources(requests[:count]).items())
        if amount
    }


def _start_order(group: ReplicaSpec) -> int:
    """The order in which kubeflow.org/v1's operators assume that pods start: chief, launcher, servers, the rest."""
    if group.role.decides is Decides.AS_CHIEF:
        return 0
    return 1 if group.role.is_anchor else 2


def _kubernetes_resources(needed: Resources) -> Resources:
    """Return the amounts without pods and host ports, which only our own scheduler counts as resources."""
    return {name: amount for name, amount in needed.items() if name != PODS and not name.startswith(HOST_PORT_PREFIX)}
