"""Maintains the PodGroup of a job that another gang scheduler places.

The PodGroup is created before the job's pods and deleted when the job finishes or is suspended.
"""

from __future__ import annotations

from dataclasses import replace

from tarragon.job.model import TrainingJob
from tarragon.kube.core import PODS
from tarragon.kube.meta import JsonObject
from tarragon.kube.patch import difference
from tarragon.plan.objects.desired import Blueprint, metadata
from tarragon.plan.objects.podgroup_kinds import Kind, PodGroup, kind_for, least
from tarragon.plan.view.actions import Create, Delete, Patch, Step
from tarragon.plan.view.job_view import Scene, is_of

DOES_NOT_RUN = "the job has finished or is suspended"

_NOT_COPIED = ("tarragon.dev/", "kubectl.kubernetes.io/")
"""Prefixes of annotations that concern the job object only and are not copied to its PodGroup."""


def body(plan: Blueprint, kind: Kind) -> JsonObject:
    """Return the complete PodGroup. It has the job's own annotations: some schedulers read options from them."""
    job = plan.job
    copied = {name: value for name, value in job.annotations.items() if not name.startswith(_NOT_COPIED)}
    return {
        "apiVersion": kind.resource.api_version,
        "kind": kind.resource.kind,
        "metadata": metadata(plan, job.key.name, plan.dialect.selector(job), copied),
        "spec": kind.spec(job, least(job)),
    }


def grouped(view: Scene, step: Step) -> Step:
    """Return the step with the actions for the job's PodGroup added.

    The queue of an existing PodGroup is kept: Volcano users move their jobs between queues that way.
    """
    kind = kind_for(view.job, view.observed.settings.pod_groups)
    if kind is None or step.mark is not None or view.is_refused:
        return step
    found = view.observed.pod_groups.get(kind.resource.full_name)
    existing = found if found is not None and is_of(found, view.job.as_owner) and not found.metadata.is_ending else None
    if view.before.phase.is_final or view.job.run_policy.suspend:
        gone = [] if existing is None else [_delete(kind, existing)]
        return replace(step, deletes=[*step.deletes, *gone])
    if existing is None:
        # A PodGroup of another owner, or one being deleted, makes the create fail: the name is taken.
        makes_pods = any(create.resource == PODS for create in step.creates)
        needed_because = f"the scheduler that its pods name needs a PodGroup ({kind.resource.full_name})"
        group = Create(resource=kind.resource, body=body(view.blueprint, kind), alone=True, without=needed_because)
        return replace(step, creates=[group, *step.creates]) if makes_pods else step
    changes = _spec_changes(kind, view.job, existing)
    return replace(step, patches=[*step.patches, _patch(kind, existing, changes)]) if changes else step


def _spec_changes(kind: Kind, job: TrainingJob, existing: PodGroup) -> JsonObject:
    """Return the spec fields that we manage and that differ from the desired ones."""
    keep_fields = {"queue"} if existing.spec.get("queue") else set()
    spec = {name: value for name, value in kind.spec(job, least(job)).items() if name not in keep_fields}
    return difference({name: existing.spec[name] for name in spec if name in existing.spec}, spec)


def _patch(kind: Kind, existing: PodGroup, spec: JsonObject) -> Patch:
    found_metadata = existing.metadata
    precondition = {"uid": found_metadata.uid, "resourceVersion": found_metadata.resource_version}
    return Patch(resource=kind.resource, key=found_metadata.key, body={"metadata": precondition, "spec": spec})


def _delete(kind: Kind, existing: PodGroup) -> Delete:
    found_metadata = existing.metadata
    return Delete(
        resource=kind.resource,
        key=found_metadata.key,
        uid=found_metadata.uid,
        resource_version=found_metadata.resource_version,
        reason=DOES_NOT_RUN,
    )
