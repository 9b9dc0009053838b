"""Sets spec.runPolicy.suspend for `tarragon suspend` and `tarragon resume`, where the generation has it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tarragon.cli.jobs.editing import JobEdit, JobNotEditable, job_has_ended
from tarragon.cli.jobview.jobs import ClusterJob
from tarragon.cli.manifest.overrides import set_path
from tarragon.frameworks.tensorflow.fields import PolicyField, SpecField
from tarragon.job.phase import Phase
from tarragon.kube.core import Pod
from tarragon.kube.meta import JsonObject
from tarragon.plan.input.decode_and_validate import decode_and_validate
from tarragon.plan.objects.desired import is_managed_by_tarragon

_FIELD = f"spec.{SpecField.RUN_POLICY}.{PolicyField.SUSPEND}"
"""A field of v1 and, as an extension, of the generations with replica lists (2017, 2018); those between have none."""


def _suspended(job: ClusterJob, before: JsonObject) -> JsonObject:
    return before if _is_suspended(before) else _changed(job, before, "suspend", value=True)


def _resumed(job: ClusterJob, before: JsonObject) -> JsonObject:
    return _changed(job, before, "resume", value=False) if _is_suspended(before) else before


def _changed(job: ClusterJob, before: JsonObject, verb: str, *, value: bool) -> JsonObject:
    if job.status.phase.is_final:
        raise job_has_ended(job, verb)
    try:
        after = set_path(before, _FIELD, value)
    except ValueError as error:
        raise JobNotEditable(f"can't {verb} {job.name}", why=str(error)) from error
    decoded = decode_and_validate(job.framework, after)
    if job.dialect is not None and decoded.dialect is not job.dialect:
        # Until the operator has marked the job, its fields determine its generation, and this field would change it.
        raise JobNotEditable(
            f"can't {verb} {job.name} yet: no operator has processed it, and {_FIELD} would change its generation",
            remedy="try again when `list` shows its state",
        )
    if value and decoded.job is not None and not decoded.job.run_policy.suspend:
        raise JobNotEditable(
            f"can't {verb} {job.name}: {decoded.job.dialect} has no {_FIELD}",
            remedy="convert it with `convert --to kubeflow.org/v1`, or `delete` it",
        )
    return after


def _is_suspended(manifest: JsonObject) -> bool:
    policy = (manifest.get("spec") or {}).get(SpecField.RUN_POLICY)
    return isinstance(policy, dict) and policy.get(PolicyField.SUSPEND) is True


def _has_no_pods(job: ClusterJob, pods: Sequence[Pod]) -> bool:
    return job.status.phase.is_final or (job.status.phase is Phase.SUSPENDED and not pods)


def _is_running(job: ClusterJob, _: Sequence[Pod]) -> bool:
    """Report whether the job runs again. In a full cluster this takes as long as its wait in the queue."""
    return job.status.phase.is_final or job.status.phase is Phase.RUNNING


def _managed_by_note(job: ClusterJob) -> str:
    if job.job is None or is_managed_by_tarragon(job.job):
        return ""
    return f"warning: {job.job.run_policy.managed_by} manages this job (managedBy) and decides what happens"


SUSPEND = JobEdit(
    in_progress_verb="Suspending",
    past_participle="suspended",
    edited_manifest=_suspended,
    is_applied=_has_no_pods,
    note=_managed_by_note,
)
RESUME = JobEdit(
    in_progress_verb="Resuming",
    past_participle="resumed",
    edited_manifest=_resumed,
    is_applied=_is_running,
    note=_managed_by_note,
)
