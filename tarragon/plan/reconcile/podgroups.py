"""Maintains the PodGroup of a job that another gang scheduler places.

The PodGroup is created before the job's pods and deleted when the job finishes or is suspended.
"""

from __future__ import annotations

from dataclasses import replace

from tarragon.job.model import TrainingJob
from tarragon.kube.core import PODS
from tarragon.kube.merge_patch import create_merge_patch
from tarragon.kube.meta import JsonObject
from tarragon.plan.objects.desired import JobBlueprint, build_metadata
from tarragon.plan.objects.podgroup_kinds import PodGroup, PodGroupKind, minimum_pods, pod_group_kind
from tarragon.plan.view.actions import Actions, Create, Delete, Patch
from tarragon.plan.view.job_view import JobView, is_controlled_by

POD_GROUP_UNUSED = "the job has finished or is suspended"

_NOT_COPIED = ("tarragon.dev/", "kubectl.kubernetes.io/")
"""Prefixes of annotations that concern the job object only and are not copied to its PodGroup."""


def build_pod_group(plan: JobBlueprint, kind: PodGroupKind) -> JsonObject:
    """Return the complete PodGroup. It has the job's own annotations: some schedulers read options from them."""
    job = plan.job
    copied = {name: value for name, value in job.annotations.items() if not name.startswith(_NOT_COPIED)}
    return {
        "apiVersion": kind.resource.api_version,
        "kind": kind.resource.kind,
        "metadata": build_metadata(plan, job.key.name, plan.dialect.selector(job), copied),
        "spec": kind.spec(job, minimum_pods(job)),
    }


def with_pod_group_actions(view: JobView, step: Actions) -> Actions:
    """Return the step with the actions for the job's PodGroup added.

    The queue of an existing PodGroup is kept: Volcano users move their jobs between queues that way.
    """
    settings = view.observed.settings
    kind = pod_group_kind(view.job, settings.pod_groups, settings.scheduler_name)
    if kind is None or step.metadata_patch is not None or view.is_spec_invalid:
        return step
    found = view.observed.pod_groups.get(kind.resource.full_name)
    existing = (
        found
        if found is not None
        and is_controlled_by(found, view.job.owner_identity)
        and not found.metadata.is_being_deleted
        else None
    )
    if view.recorded_status.phase.is_final or view.job.run_policy.suspend:
        gone = [] if existing is None else [_delete(kind, existing)]
        return replace(step, deletes=[*step.deletes, *gone])
    if existing is None:
        # A PodGroup of another owner, or one being deleted, makes the create fail: the name is taken.
        makes_pods = any(create.resource == PODS for create in step.creates)
        needed_because = f"the scheduler that its pods name needs a PodGroup ({kind.resource.full_name})"
        if kind.served_by:
            needed_because += f", served by {kind.served_by}"
        group = Create(
            resource=kind.resource,
            body=build_pod_group(view.blueprint, kind),
            is_sequential=True,
            consequence=needed_because,
        )
        return replace(step, creates=[group, *step.creates]) if makes_pods else step
    changes = _spec_changes(kind, view.job, existing)
    return replace(step, patches=[*step.patches, _patch(kind, existing, changes)]) if changes else step


def _spec_changes(kind: PodGroupKind, job: TrainingJob, existing: PodGroup) -> JsonObject:
    """Return the spec fields that we manage, that may change, and that differ from the desired ones."""
    keep_fields = kind.immutable | ({"queue"} if existing.spec.get("queue") else frozenset())
    spec = {name: value for name, value in kind.spec(job, minimum_pods(job)).items() if name not in keep_fields}
    return create_merge_patch({name: existing.spec[name] for name in spec if name in existing.spec}, spec)


def _patch(kind: PodGroupKind, existing: PodGroup, spec: JsonObject) -> Patch:
    found_metadata = existing.metadata
    precondition = {"uid": found_metadata.uid, "resourceVersion": found_metadata.resource_version}
    return Patch(resource=kind.resource, key=found_metadata.key, body={"metadata": precondition, "spec": spec})


def _delete(kind: PodGroupKind, existing: PodGroup) -> Delete:
    found_metadata = existing.metadata
    return Delete(
        resource=kind.resource,
        key=found_metadata.key,
        uid=found_metadata.uid,
        resource_version=found_metadata.resource_version,
        reason=POD_GROUP_UNUSED,
    )
