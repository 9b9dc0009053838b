"""Sets spec.runPolicy.suspend for `tarragon suspend` and `tarragon resume`, where the generation has it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tarragon.cli.jobs.editing import JobEdit, JobNotEditable, job_has_ended
from tarragon.cli.jobview.jobs import ClusterJob
from tarragon.cli.manifest.overrides import set_path
from tarragon.job.phase import Phase
from tarragon.kube.core import Pod
from tarragon.kube.meta import Json, JsonObject
from tarragon.plan.input.decode_and_validate import decode_and_validate
from tarragon.plan.objects.desired import is_managed_by_tarragon


def _suspended(job: ClusterJob, before: JsonObject) -> JsonObject:
    return before if _is_suspended(job, before) else _changed(job, before, "suspend", value=True)


def _resumed(job: ClusterJob, before: JsonObject) -> JsonObject:
    return _changed(job, before, "resume", value=False) if _is_suspended(job, before) else before


def _changed(job: ClusterJob, before: JsonObject, verb: str, *, value: bool) -> JsonObject:
    path = job.framework.editable_fields.suspend
    if job.status.phase.is_final:
        raise job_has_ended(job, verb)
    if not path:
        raise JobNotEditable(f"can't {verb} {job.name}: {job.framework.kind}s can't be suspended", remedy="`delete` it")
    try:
        after = set_path(before, path, value)
    except ValueError as error:
        raise JobNotEditable(f"can't {verb} {job.name}", why=str(error)) from error
    decoded = decode_and_validate(job.framework, after)
    if job.dialect is not None and decoded.dialect is not job.dialect:
        # Until the operator has marked the job, its fields determine its generation, and this field would change it.
        raise JobNotEditable(
            f"can't {verb} {job.name} yet: no operator has processed it, and {path} would change its generation",
            remedy="try again when `list` shows its state",
        )
    if value and decoded.job is not None and not decoded.job.run_policy.suspend:
        conversion = job.framework.conversion
        convert = f"convert it with `convert --to {conversion.newest}`, or " if conversion is not None else ""
        raise JobNotEditable(
            f"can't {verb} {job.name}: {decoded.job.dialect} has no {path}", remedy=f"{convert}`delete` it"
        )
    return after


def _is_suspended(job: ClusterJob, manifest: JsonObject) -> bool:
    value: Json = manifest
    for name in job.framework.editable_fields.suspend.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value is True


def _has_no_pods(job: ClusterJob, pods: Sequence[Pod]) -> bool:
    if job.status.phase.is_final:
        raise job_has_ended(job, "suspend")
    return job.status.phase is Phase.SUSPENDED and not pods


def _is_running(job: ClusterJob, _: Sequence[Pod]) -> bool:
    """Report whether the job runs again. In a full cluster this takes as long as its wait in the queue."""
    return job.status.phase.is_final or job.status.phase is Phase.RUNNING


def _managed_by_notes(_: ClusterJob, job: ClusterJob) -> Sequence[str]:
    if job.job is None or is_managed_by_tarragon(job.job):
        return ()
    return [f"warning: {job.job.run_policy.managed_by} manages this job (managedBy) and decides what happens"]


SUSPEND = JobEdit(
    in_progress_verb="Suspending",
    past_participle="suspended",
    edited_manifest=_suspended,
    is_applied=_has_no_pods,
    notes=_managed_by_notes,
)
RESUME = JobEdit(
    in_progress_verb="Resuming",
    past_participle="resumed",
    edited_manifest=_resumed,
    is_applied=_is_running,
    notes=_managed_by_notes,
)
