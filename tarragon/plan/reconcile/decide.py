"""One job, one look, one step: a chain of rules, the first that has something to say decides."""

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
    """What to do about the job now. Deciding again on the result of the step ends in a step that does nothing."""
    if observed.object.metadata.is_ending or is_left_to_others(observed.object.spec):
        return Step()  # Pods and services of a job that ends go with it: they have it as their owner.
    other = keeper(framework.kind, observed)
    if other is not None:
        return Step(events=left_alone(framework.resource, observed.object, other))
    taken = observed.taken
    good = last_good(framework, observed.object, taken)
    step = unmarked(observed, taken) or refused(framework, observed, good, now)
    seen = scene(framework, observed, good, now)
    if step is not None or seen is None:
        return step or Step()
    step = finished(seen) or suspended(seen) or resumed(seen) or remembering(seen) or going(seen)
    return beside(seen, grouped(seen, step))


def unmarked(observed: Observed, taken: Intake) -> Step | None:
    """The generation goes on record before anything else: later, nothing of the object may tell it any more."""
    dialect: Dialect | None = taken.dialect
    if dialect is None:
        return None
    there = observed.object.metadata.annotations
    job = taken.job if taken.job is None else begun_as(taken.job, observed.object)
    lasting = {} if job is None else dialect.lasting(job)
    if GENERATION_ANNOTATION in there:
        missing = {name: value for name, value in lasting.items() if there.get(name) != value}
        mark = {"metadata": {**precondition(observed.object), "annotations": missing}}
        return Step(mark=mark) if missing else None
    annotations = {GENERATION_ANNOTATION: dialect.name, **lasting}
    if is_begun(observed):
        annotations[ADOPT_ANNOTATION] = "true"
    written = observed.object.spec
    spec = dialect.written_back(job, written) if job is not None and isinstance(written, Mapping) else {}
    annotations |= marks(written, spec)
    metadata: dict[str, Json] = {**precondition(observed.object), "annotations": annotations}
    return Step(mark={"metadata": metadata, "spec": spec} if spec else {"metadata": metadata})


def going(seen: Scene) -> Step:
    """The usual case: note what has happened, then make what is missing and remove what is too much."""
    status = outcome(seen)
    if status.phase.is_final:
        return Step(
            status=status_patch(seen, status),
            deletes=clean_up(seen, status),
            events=news(seen, status),
            wake_at=expires_at(seen.job, status),
        )
    leaving = leave(seen, doomed(seen, status))
    wakes = (
        deadline_at(seen.job, status),
        wake_for_start(seen, status),
        look_again_at(seen, status),
        leaving.again,
        gives_up_at(seen),
    )
    return Step(
        status=status_patch(seen, status),
        notices=leaving.notices,
        deletes=[*leaving.deletes, *given_up(seen), *deletes_of_services(seen)],
        creates=creates(seen, status),
        events=news(seen, status),
        wake_at=min((at for at in wakes if at is not None), default=None),
    )
