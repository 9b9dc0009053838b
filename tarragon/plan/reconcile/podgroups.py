"""The PodGroup of a job that another gang scheduler places: there before its pods, gone when it does not run."""

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

DOES_NOT_RUN = "the job does not run"

_NOT_COPIED = ("tarragon.dev/", "kubectl.kubernetes.io/")
"""How annotations of a job begin that are about the job itself."""


def body(plan: Blueprint, kind: Kind) -> JsonObject:
    """Complete. It bears the job's own annotations: some schedulers read more there."""
    job = plan.job
    copied = {name: value for name, value in job.annotations.items() if not name.startswith(_NOT_COPIED)}
    return {
        "apiVersion": kind.resource.api_version,
        "kind": kind.resource.kind,
        "metadata": metadata(plan, job.key.name, plan.dialect.selector(job), copied),
        "spec": kind.spec(job, least(job)),
    }


def grouped(scene: Scene, step: Step) -> Step:
    """The step with what is to be done about the job's PodGroup.

    A queue that somebody has put an existing group into stays: Volcano's users move their jobs so.
    """
    kind = kind_for(scene.job, scene.observed.settings.pod_groups)
    if kind is None or step.mark is not None or scene.is_refused:
        return step
    found = scene.observed.pod_groups.get(kind.resource.full_name)
    there = found if found is not None and is_of(found, scene.job.as_owner) and not found.metadata.is_ending else None
    if scene.before.phase.is_final or scene.job.run_policy.suspend:
        gone = [] if there is None else [_delete(kind, there)]
        return replace(step, deletes=[*step.deletes, *gone])
    if there is None:
        # A stranger's of this name, or one of ours on its way out, is met when it is made: the name is taken.
        makes_pods = any(create.resource == PODS for create in step.creates)
        wants = f"the scheduler that its pods name wants a PodGroup ({kind.resource.full_name})"
        group = Create(resource=kind.resource, body=body(scene.blueprint, kind), alone=True, without=wants)
        return replace(step, creates=[group, *step.creates]) if makes_pods else step
    wanted = _wanted(kind, scene.job, there)
    return replace(step, patches=[*step.patches, _patch(kind, there, wanted)]) if wanted else step


def _wanted(kind: Kind, job: TrainingJob, there: PodGroup) -> JsonObject:
    """The fields of ours that are not as they should be."""
    kept = {"queue"} if there.spec.get("queue") else set()
    spec = {name: value for name, value in kind.spec(job, least(job)).items() if name not in kept}
    return difference({name: there.spec[name] for name in spec if name in there.spec}, spec)


def _patch(kind: Kind, there: PodGroup, spec: JsonObject) -> Patch:
    known = there.metadata
    precondition = {"uid": known.uid, "resourceVersion": known.resource_version}
    return Patch(resource=kind.resource, key=known.key, body={"metadata": precondition, "spec": spec})


def _delete(kind: Kind, there: PodGroup) -> Delete:
    known = there.metadata
    return Delete(
        resource=kind.resource,
        key=known.key,
        uid=known.uid,
        resource_version=known.resource_version,
        reason=DOES_NOT_RUN,
    )
