"""The entry point of reconciling one job: a chain of rules, of which the first that returns a step decides."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from tarragon.frameworks.plugin import Dialect, Framework
from tarragon.job.model import ADOPT_ANNOTATION, GENERATION_ANNOTATION
from tarragon.kube.meta import Json
from tarragon.plan.input.decode_and_validate import Intake
from tarragon.plan.lifecycle.force_delete import given_up, gives_up_at
from tarragon.plan.lifecycle.graceful_eviction import leave
from tarragon.plan.lifecycle.pod_control import creates, deletes_of_services, doomed, wake_for_start
from tarragon.plan.reconcile.adoption import remembering
from tarragon.plan.reconcile.finish import clean_up, finished
from tarragon.plan.reconcile.invalid_spec import begun_as, last_good, refused
from tarragon.plan.reconcile.managed_by import is_begun, is_left_to_others, keeper, left_alone
from tarragon.plan.reconcile.podgroups import grouped
from tarragon.plan.reconcile.suspend import resumed, suspended
from tarragon.plan.reconcile.tensorboard import beside
from tarragon.plan.status.creation_failures import look_again_at
from tarragon.plan.status.limits import deadline_at, expires_at
from tarragon.plan.status.outcome import outcome
from tarragon.plan.status.patch import news, precondition, status_patch
from tarragon.plan.status.provenance import marks
from tarragon.plan.view.actions import Observed, Step
from tarragon.plan.view.job_view import Scene, scene


def decide(framework: Framework, observed: Observed, now: dt.datetime) -> Step:
    """Return what to do about the job now. Deciding again after the step was applied converges to an empty step."""
    if observed.object.metadata.is_ending or is_left_to_others(observed.object.spec):
        return Step()  # Garbage collection deletes the pods and services of a deleted job by their owner reference.
    other = keeper(framework.kind, observed)
    if other is not None:
        return Step(events=left_alone(framework.resource, observed.object, other))
    decoded = observed.taken
    effective = last_good(framework, observed.object, decoded)
    step = unmarked(observed, decoded) or refused(framework, observed, effective, now)
    view = scene(framework, observed, effective, now)
    if step is not None or view is None:
        return step or Step()
    step = finished(view) or suspended(view) or resumed(view) or remembering(view) or going(view)
    return beside(view, grouped(view, step))


def unmarked(observed: Observed, decoded: Intake) -> Step | None:
    """Return the step that records the API generation in an annotation, before anything else is done.

    Later writes may remove everything else that identifies the generation. None when nothing is missing.
    """
    dialect: Dialect | None = decoded.dialect
    if dialect is None:
        return None
    existing_annotations = observed.object.metadata.annotations
    job = decoded.job if decoded.job is None else begun_as(decoded.job, observed.object)
    permanent = {} if job is None else dialect.lasting(job)
    if GENERATION_ANNOTATION in existing_annotations:
        missing = {name: value for name, value in permanent.items() if existing_annotations.get(name) != value}
        mark = {"metadata": {**precondition(observed.object), "annotations": missing}}
        return Step(mark=mark) if missing else None
    annotations = {GENERATION_ANNOTATION: dialect.name, **permanent}
    if is_begun(observed):
        annotations[ADOPT_ANNOTATION] = "true"
    submitted_spec = observed.object.spec
    spec_patch = (
        dialect.written_back(job, submitted_spec) if job is not None and isinstance(submitted_spec, Mapping) else {}
    )
    annotations |= marks(submitted_spec, spec_patch)
    metadata: dict[str, Json] = {**precondition(observed.object), "annotations": annotations}
    return Step(mark={"metadata": metadata, "spec": spec_patch} if spec_patch else {"metadata": metadata})


def going(view: Scene) -> Step:
    """Handle the usual case: record what has happened, create missing objects and delete superfluous ones."""
    status = outcome(view)
    if status.phase.is_final:
        return Step(
            status=status_patch(view, status),
            deletes=clean_up(view, status),
            events=news(view, status),
            wake_at=expires_at(view.job, status),
        )
    evictions = leave(view, doomed(view, status))
    wakes = (
        deadline_at(view.job, status),
        wake_for_start(view, status),
        look_again_at(view, status),
        evictions.again,
        gives_up_at(view),
    )
    return Step(
        status=status_patch(view, status),
        notices=evictions.notices,
        deletes=[*evictions.deletes, *given_up(view), *deletes_of_services(view)],
        creates=creates(view, status),
        events=news(view, status),
        wake_at=min((at for at in wakes if at is not None), default=None),
    )
