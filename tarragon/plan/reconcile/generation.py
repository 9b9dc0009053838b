"""Writes into a new job what its status can't keep, before anything else: the API generation, and fields that it lacks.

Most jobs need none of it. Their generation is in the status, and without a status they are recognised as what they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tarragon.frameworks.dialect_detection import recorded_generation
from tarragon.frameworks.plugin import Framework
from tarragon.job.model import ADOPT_ANNOTATION, GENERATION_ANNOTATION
from tarragon.kube.event import reference_to
from tarragon.kube.meta import Json
from tarragon.plan.input.decode_and_validate import DecodedJob
from tarragon.plan.reconcile.invalid_spec import with_recorded_runtime_id
from tarragon.plan.reconcile.managed_by import is_started_by_other, other_manager
from tarragon.plan.reconcile.manager_on_record import is_managed_by_other
from tarragon.plan.status.patch import precondition, warning_events
from tarragon.plan.status.provenance import provenance_annotations
from tarragon.plan.view.actions import Actions, ObservedJob


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationMark:
    """What is to be written into a job: annotations and fields of its spec."""

    annotations: Mapping[str, str]
    spec_patch: Mapping[str, Json]


def record_generation(framework: Framework, observed: ObservedJob, decoded: DecodedJob) -> Actions | None:
    """Return the step that writes the mark, before anything else is done; None when nothing is missing."""
    mark = generation_mark(observed, decoded)
    if mark is None:
        return None
    metadata: dict[str, Json] = {**precondition(observed.object), "annotations": mark.annotations}
    is_new = GENERATION_ANNOTATION in mark.annotations
    return Actions(
        metadata_patch={"metadata": metadata, "spec": mark.spec_patch} if mark.spec_patch else {"metadata": metadata},
        events=warning_events(reference_to(framework.resource, observed.object), decoded.recognition_warnings)
        if is_new
        else (),
    )


def generation_mark(observed: ObservedJob, decoded: DecodedJob) -> GenerationMark | None:
    """Return what the job lacks; None if that is nothing.

    The annotation is for jobs that would be taken for another generation after a restore from a backup, which brings
    back neither the status nor the version in which the job was written.
    """
    dialect = decoded.dialect
    if dialect is None:
        return None
    existing_annotations = observed.object.metadata.annotations
    job = decoded.job if decoded.job is None else with_recorded_runtime_id(decoded.job, observed.object)
    permanent = {} if job is None else dialect.persistent_annotations(job)
    if GENERATION_ANNOTATION in existing_annotations:
        missing = {name: value for name, value in permanent.items() if existing_annotations.get(name) != value}
        return GenerationMark(annotations=missing, spec_patch={}) if missing else None
    submitted_spec = observed.object.spec
    spec_patch: dict[str, Json] = {}
    is_new = recorded_generation(observed.object) is None
    if is_new and job is not None and isinstance(submitted_spec, Mapping):
        configured = observed.settings.job_defaults.get(job.kind, {})
        spec_patch = dialect.default_fields(job, submitted_spec) | dialect.configured_fields(submitted_spec, configured)
    adoption = {ADOPT_ANNOTATION: "true"} if is_started_by_other(observed) else {}
    if decoded.tells_its_generation and not (permanent or spec_patch or adoption):
        return None
    return GenerationMark(
        annotations={
            GENERATION_ANNOTATION: dialect.name,
            **permanent,
            **adoption,
            **provenance_annotations(submitted_spec, spec_patch),
        },
        spec_patch=spec_patch,
    )


def needs_no_mark(framework: Framework, observed: ObservedJob) -> bool:
    """Whether Tarragon manages the job and its status may be written at once, without the mark."""
    found = observed.object
    return not (
        found.metadata.is_being_deleted
        or is_managed_by_other(found.spec)
        or other_manager(framework.kind, observed) is not None
        or generation_mark(observed, observed.decoded) is not None
    )
