"""Suspending a job and letting it go on: one field, where the generation has it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tarragon.cli.jobs.editing import CannotChange, Edit, has_ended
from tarragon.cli.jobview.jobs import Known
from tarragon.cli.manifest.overrides import assigned
from tarragon.frameworks.tensorflow.fields import Policy, Spec
from tarragon.job.phase import Phase
from tarragon.kube.core import Pod
from tarragon.kube.meta import JsonObject
from tarragon.plan.input.decode_and_validate import intake
from tarragon.plan.objects.desired import is_ours

_FIELD = f"spec.{Spec.RUN_POLICY}.{Policy.SUSPEND}"
"""Of v1, and heard in the lists of 2017 and 2018, too; the maps between them have no field for it."""


def _suspended(job: Known, before: JsonObject) -> JsonObject:
    return before if _is_suspended(before) else _changed(job, before, "suspend", value=True)


def _resumed(job: Known, before: JsonObject) -> JsonObject:
    return _changed(job, before, "resume", value=False) if _is_suspended(before) else before


def _changed(job: Known, before: JsonObject, verb: str, *, value: bool) -> JsonObject:
    if job.status.phase.is_final:
        raise has_ended(job, verb)
    try:
        after = assigned(before, _FIELD, value)
    except ValueError as error:
        raise CannotChange(f"can't {verb} {job.name}", why=str(error)) from error
    taken = intake(job.framework, after)
    if job.dialect is not None and taken.dialect is not job.dialect:
        # Until the operator has marked it, its generation is told by its fields, and this one would tell another.
        raise CannotChange(
            f"can't {verb} {job.name} yet: no operator has looked at it, and {_FIELD} would make it a job of another "
            "generation",
            remedy="try again when `list` shows a state for it",
        )
    if value and taken.job is not None and not taken.job.run_policy.suspend:
        raise CannotChange(
            f"can't {verb} {job.name}: {taken.job.generation} has no field for it",
            remedy="`convert --to kubeflow.org/v1` writes its manifest as one that can be suspended; `delete` ends it",
        )
    return after


def _is_suspended(manifest: JsonObject) -> bool:
    policy = (manifest.get("spec") or {}).get(Spec.RUN_POLICY)
    return isinstance(policy, dict) and policy.get(Policy.SUSPEND) is True


def _nothing_runs(job: Known, pods: Sequence[Pod]) -> bool:
    return job.status.phase.is_final or (job.status.phase is Phase.SUSPENDED and not pods)


def _goes_on(job: Known, _: Sequence[Pod]) -> bool:
    """It runs. In a full cluster that may take as long as the queue does."""
    return job.status.phase.is_final or job.status.phase is Phase.RUNNING


def _whose(job: Known) -> str:
    if job.job is None or is_ours(job.job):
        return ""
    return f"warning: its managedBy names {job.job.run_policy.managed_by}: what becomes of it is up to that one"


SUSPEND = Edit(doing="Suspending", done="suspended", wanted=_suspended, has_come=_nothing_runs, note=_whose)
RESUME = Edit(doing="Resuming", done="resumed", wanted=_resumed, has_come=_goes_on, note=_whose)
