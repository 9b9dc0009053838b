"""Fields of pod templates that the API server drops: those of features that it does not have, or that are turned off.

It does so without a word, and the pod then means something else. What was dropped is seen on the pods themselves.
"""

from __future__ import annotations

from collections.abc import Iterator

from tarragon.job.model import ReplicaType
from tarragon.kube.core import Pod, PodSpec
from tarragon.kube.meta import JsonObject
from tarragon.plan.objects.podgroup_kinds import SCHEDULING_GROUP
from tarragon.plan.view.job_view import JobView


def ignored_pod_fields(view: JobView) -> list[str]:
    """Return what the API server has dropped from the pods, with what follows; empty without pods."""
    pods: dict[ReplicaType, Pod] = {replica.type: member.pod for replica, member in view.members.items()}
    specs = ((group, pods[group.type].spec) for group in view.job.replica_specs if group.type in pods)
    return [
        f"{group.type} template.spec.{field}"
        for group, spec in specs
        for field in _dropped(group.template.get("spec", {}), spec)
    ]


def _dropped(template: JsonObject, spec: PodSpec) -> Iterator[str]:
    policies = {container.name: container.restart_policy for container in spec.init_containers}
    for index, container in enumerate(template.get("initContainers", [])):
        name = container.get("name", "")
        if container.get("restartPolicy") and not policies.get(name, container["restartPolicy"]):
            yield (
                f"initContainers[{index}].restartPolicy (Kubernetes 1.29): {name} is no sidecar, "
                "so the training does not start before it has ended"
            )
    if _has_amounts(template.get("resources") or {}) and not (spec.resources.requests or spec.resources.limits):
        yield "resources (Kubernetes 1.34): only the resources of containers count"
    if template.get("resourceClaims") and not spec.resource_claims:
        yield "resourceClaims (Kubernetes 1.34): the pods get no devices of these claims"
    if template.get(SCHEDULING_GROUP) and spec.scheduling_group is None:
        needs = "Kubernetes 1.37 with the feature gate GenericWorkload"
        yield f"{SCHEDULING_GROUP} ({needs}): kube-scheduler places the pods one by one"


def _has_amounts(resources: JsonObject) -> bool:
    return bool(resources.get("requests") or resources.get("limits"))
