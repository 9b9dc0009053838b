"""What other gang schedulers want to see of a job whose pods name them: a PodGroup each, and marks on the pods.

Field by field as the training operators of kubeflow.org/v1 wrote them, so that a Volcano, or a kube-scheduler with the
plug-in of scheduler-plugins, goes on with a job as it did. Where Kubernetes has them itself (1.37), they are `native`.
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

_FIRST: Sequence[ReplicaType] = (ReplicaType.CHIEF, ReplicaType.MASTER, ReplicaType.LAUNCHER, ReplicaType.PS)


class PodGroup(AnyObject, frozen=True):
    """Of any scheduler, as far as we look at it."""

    spec: dict[str, Json] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What one scheduler wants."""

    resource: Resource[PodGroup]
    spec: Callable[[TrainingJob, int], JsonObject]
    """Of the group, by how many pods it takes at least."""
    annotations: Callable[[TrainingJob, Replica], Mapping[str, str]] = lambda _, __: {}
    labels: Callable[[TrainingJob, Replica], Mapping[str, str]] = lambda _, __: {}
    pod_spec: Callable[[TrainingJob], JsonObject] = lambda _: {}
    """What a pod's spec says of its group."""


def _volcano(job: TrainingJob, least: int) -> JsonObject:
    policy = job.run_policy.scheduling
    named = {"priorityClassName": policy.priority_class} if policy.priority_class else {}
    return {"minMember": least, "queue": policy.queue or "default", "minResources": _needed(job, least), **named}


def _plugins(job: TrainingJob, least: int) -> JsonObject:
    timeout = job.run_policy.scheduling.timeout
    waits = {} if timeout is None else {"scheduleTimeoutSeconds": timeout}
    return {"minMember": least, "minResources": _needed(job, least), **waits}


def _native(job: TrainingJob, least: int) -> JsonObject:
    name = job.run_policy.scheduling.priority_class
    named = {"priorityClassName": name} if name else {}
    return {"schedulingPolicy": {"gang": {"minCount": least}}, **named}


def _group(group: str, version: str) -> Resource[PodGroup]:
    return Resource(group=group, version=version, plural="podgroups", kind="PodGroup", model=PodGroup)


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "volcano": Kind(
            resource=_group("scheduling.volcano.sh", "v1beta1"),
            spec=_volcano,
            annotations=lambda job, replica: {
                "scheduling.k8s.io/group-name": job.key.name,
                "volcano.sh/task-spec": replica.type.word,
            },
        ),
        "scheduler-plugins": Kind(
            resource=_group("scheduling.x-k8s.io", "v1alpha1"),
            spec=_plugins,
            labels=lambda job, _: {"scheduling.x-k8s.io/pod-group": job.key.name},
        ),
        "native": Kind(
            resource=_group("scheduling.k8s.io", "v1beta1"),
            spec=_native,
            pod_spec=lambda job: {"schedulingGroup": {"podGroupName": job.key.name}},
        ),
    }
)

BY_SCHEDULER: Mapping[str, str] = MappingProxyType(
    {"volcano": "volcano", "scheduler-plugins-scheduler": "scheduler-plugins"}
)
"""How these schedulers are called unless somebody has named them otherwise."""


def kind_for(job: TrainingJob, by_scheduler: Mapping[str, str]) -> Kind | None:
    """What the scheduler wants that all pods of the job name; None where nobody wants anything."""
    named = {group.template.get("spec", {}).get("schedulerName", "") for group in job.groups if group.wish}
    (name, *others) = named or {""}
    return None if others else KINDS.get(by_scheduler.get(name, ""))


def least(job: TrainingJob) -> int:
    """As schedulingPolicy.minAvailable says, else all pods; of an elastic job its servers and min-instances."""
    asked = job.run_policy.scheduling.min_available
    if asked is not None:
        return asked
    return sum(
        min(job.elastic.minimum, group.wish)
        if job.elastic is not None and group.type is ReplicaType.WORKER
        else group.wish
        for group in job.groups
    )


def marked(pod: JsonObject, kind: Kind, job: TrainingJob, replica: Replica) -> JsonObject:
    """So that its scheduler knows which group it is of."""
    known = pod["metadata"]
    parts = (("labels", kind.labels(job, replica)), ("annotations", kind.annotations(job, replica)))
    marks = {part: {**known.get(part, {}), **more} for part, more in parts if more}
    return {**pod, "metadata": {**known, **marks}, "spec": {**pod["spec"], **kind.pod_spec(job)}}


def _needed(job: TrainingJob, number: int) -> JsonObject:
    """As asked, else what the first pods need, those first that the others wait for."""
    asked = job.run_policy.scheduling.min_resources
    if asked:
        return dict(asked)
    order = {kind: place for place, kind in enumerate(_FIRST)}
    groups = sorted(job.groups, key=lambda group: (order.get(group.type, len(order)), group.type))
    each = [_amounts(group_request(group)) for group in groups for _ in range(group.wish)]
    return {name: quantity.text(amount) for name, amount in sorted(total(each[:number]).items()) if amount}


def _amounts(needed: Resources) -> Resources:
    """Pods and ports are counted by nobody but us."""
    return {name: amount for name, amount in needed.items() if name != PODS and not name.startswith(HOST_PORT)}
