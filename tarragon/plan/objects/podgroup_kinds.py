"""The PodGroups, pod labels and annotations that other gang schedulers need for jobs whose pods name them.

They match field by field what the kubeflow.org/v1 training operators write, so that Volcano, or kube-scheduler with
scheduler-plugins, keeps working with existing jobs. `native` is Kubernetes' own PodGroup (1.37).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tarragon.base import quantity
from tarragon.base.resources import PODS, Resources, total
from tarragon.job.model import Replica, ReplicaType, TrainingJob
from tarragon.kube.meta import AnyObject, Json, JsonObject, Resource
from tarragon.plan.nodes.capacity import HOST_PORT, group_request

_START_ORDER: Sequence[ReplicaType] = (ReplicaType.CHIEF, ReplicaType.MASTER, ReplicaType.LAUNCHER, ReplicaType.PS)


class PodGroup(AnyObject, frozen=True):
    """A PodGroup of any scheduler, decoded as far as it is used."""

    spec: dict[str, Json] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """The PodGroup resource of one scheduler, and what it needs on pods."""

    resource: Resource[PodGroup]
    spec: Callable[[TrainingJob, int], JsonObject]
    """Builds the group's spec from the job and the minimum number of pods."""
    annotations: Callable[[TrainingJob, Replica], Mapping[str, str]] = lambda _, __: {}
    labels: Callable[[TrainingJob, Replica], Mapping[str, str]] = lambda _, __: {}
    pod_spec: Callable[[TrainingJob], JsonObject] = lambda _: {}
    """Builds the fields of the pod spec that name the group."""


def _volcano(job: TrainingJob, least: int) -> JsonObject:
    policy = job.run_policy.scheduling
    priority = {"priorityClassName": policy.priority_class} if policy.priority_class else {}
    return {
        "minMember": least,
        "queue": policy.queue or "default",
        "minResources": _min_resources(job, least),
        **priority,
    }


def _plugins(job: TrainingJob, least: int) -> JsonObject:
    timeout = job.run_policy.scheduling.timeout
    timeout_field = {} if timeout is None else {"scheduleTimeoutSeconds": timeout}
    return {"minMember": least, "minResources": _min_resources(job, least), **timeout_field}


def _native(job: TrainingJob, least: int) -> JsonObject:
    name = job.run_policy.scheduling.priority_class
    priority = {"priorityClassName": name} if name else {}
    return {"schedulingPolicy": {"gang": {"minCount": least}}, **priority}


def _resource(group: str, version: str) -> Resource[PodGroup]:
    return Resource(group=group, version=version, plural="podgroups", kind="PodGroup", model=PodGroup)


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "volcano": Kind(
            resource=_resource("scheduling.volcano.sh", "v1beta1"),
            spec=_volcano,
            annotations=lambda job, replica: {
                "scheduling.k8s.io/group-name": job.key.name,
                "volcano.sh/task-spec": replica.type.word,
            },
        ),
        "scheduler-plugins": Kind(
            resource=_resource("scheduling.x-k8s.io", "v1alpha1"),
            spec=_plugins,
            labels=lambda job, _: {"scheduling.x-k8s.io/pod-group": job.key.name},
        ),
        "native": Kind(
            resource=_resource("scheduling.k8s.io", "v1beta1"),
            spec=_native,
            pod_spec=lambda job: {"schedulingGroup": {"podGroupName": job.key.name}},
        ),
    }
)

BY_SCHEDULER: Mapping[str, str] = MappingProxyType(
    {"volcano": "volcano", "scheduler-plugins-scheduler": "scheduler-plugins"}
)
"""The schedulers' default names, with the kind of PodGroup that they need."""


def kind_for(job: TrainingJob, by_scheduler: Mapping[str, str]) -> Kind | None:
    """Return the PodGroup kind of the one scheduler that all pods of the job name; None if it needs none."""
    scheduler_names = {group.template.get("spec", {}).get("schedulerName", "") for group in job.groups if group.wish}
    (name, *others) = scheduler_names or {""}
    return None if others else KINDS.get(by_scheduler.get(name, ""))


def least(job: TrainingJob) -> int:
    """Return the minimum number of pods: schedulingPolicy.minAvailable, else all pods.

    Of an elastic job's workers only min-instances count.
    """
    requested = job.run_policy.scheduling.min_available
    if requested is not None:
        return requested
    return sum(
        min(job.elastic.minimum, group.wish)
        if job.elastic is not None and group.type is ReplicaType.WORKER
        else group.wish
        for group in job.groups
    )


def marked(pod: JsonObject, kind: Kind, job: TrainingJob, replica: Replica) -> JsonObject:
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
    requested = job.run_policy.scheduling.min_resources
    if requested:
        return dict(requested)
    order = {kind: position for position, kind in enumerate(_START_ORDER)}
    groups = sorted(job.groups, key=lambda group: (order.get(group.type, len(order)), group.type))
    requests = [_kubernetes_resources(group_request(group)) for group in groups for _ in range(group.wish)]
    return {name: quantity.text(amount) for name, amount in sorted(total(requests[:count]).items()) if amount}


def _kubernetes_resources(needed: Resources) -> Resources:
    """Return the amounts without pods and host ports, which only our own scheduler counts as resources."""
    return {name: amount for name, amount in needed.items() if name != PODS and not name.startswith(HOST_PORT)}
