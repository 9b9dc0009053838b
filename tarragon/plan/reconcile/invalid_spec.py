"""A job that makes no sense: told once, with every problem; one that has started goes on until its edit is mended."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace

from tarragon.frameworks.plugin import Dialect, Framework
from tarragon.job import classic, conditions
from tarragon.job.accepted import Identity, accepted_job, suspended
from tarragon.job.conditions import Said, with_condition
from tarragon.job.encoding import recall
from tarragon.job.model import TrainingJob
from tarragon.job.phase import Phase
from tarragon.job.reason import reason_of
from tarragon.job.status import JobStatus
from tarragon.kube.event import ObjectReference
from tarragon.kube.meta import CustomObject, Json
from tarragon.plan.input.decode_and_validate import Intake, words
from tarragon.plan.lifecycle.pod_control import delete_job
from tarragon.plan.status.limits import expires_at
from tarragon.plan.status.patch import changes, conditional, status_of, tarragon_of
from tarragon.plan.view.actions import Observed, Step
from tarragon.plan.view.job_view import is_of


def refused(framework: Framework, observed: Observed, taken: Intake, now: dt.datetime) -> Step | None:
    """Failing a job that has trained for days because of a slip in an editor would lose more than it mends.

    Nor is a job failed of which we know only that another version of Tarragon has marked it.
    """
    if taken.job is not None:
        return None
    before = recall(observed.object.status).status
    if before.phase.is_final:
        return _kept_until_it_expires(framework, observed, before, now)
    owner = observed.object.as_owner
    has_started = before.started is not None or any(is_of(pod, owner) for pod in observed.pods)
    dialect = taken.dialect or framework.dialects[-1]
    kind = conditions.SPEC_REFUSED if has_started or taken.dialect is None else conditions.FAILED
    said = Said(kind, True, dialect.condition_reason(conditions.INVALID), words(taken.problems))
    status = replace(before, conditions=with_condition(before.conditions, said, now))
    if kind == conditions.FAILED:
        status = replace(status, phase=Phase.FAILED, completed=now)
    about = ObjectReference(
        api_version=framework.resource.api_version,
        kind=framework.kind,
        key=observed.object.metadata.key,
        uid=owner.uid,
    )
    patch = conditional(observed.object, _fields(observed, status, dialect))
    return Step(status=patch, events=list(changes(about, before, status)) if patch is not None else ())


def last_good(framework: Framework, found: CustomObject, taken: Intake) -> Intake:
    """With the job as it was before an edit that makes no sense, if that is on record."""
    metadata = found.metadata
    taken = _barred(found, taken)
    if taken.job is not None or taken.dialect is None:
        return taken
    identity = Identity(
        kind=framework.kind,
        api_version=taken.dialect.api_version,
        generation=taken.dialect.name,
        key=metadata.key,
        uid=metadata.uid,
    )
    job = accepted_job(tarragon_of(status_of(found)).get("accepted"), identity)
    return taken if job is None else replace(taken, job=suspended(job, found.spec))


def _barred(found: CustomObject, taken: Intake) -> Intake:
    """With what is not supported yet among the problems, unless the job has started.

    One that has started was taken by an earlier version of the operator, which did not look for it. It goes on as
    before, and its lost pods are replaced: an upgrade of the operator ends no training.
    """
    if not taken.unsupported:
        return taken
    before = recall(found.status).status
    if taken.job is not None and (before.started is not None or before.is_admitted):
        return taken
    return replace(taken, job=None, problems=taken.refusals, unsupported=())


def begun_as(job: TrainingJob, found: CustomObject) -> TrainingJob:
    """With the runtime id on record: `kubectl replace` takes annotations away, and an id that a user left out."""
    accepted = tarragon_of(status_of(found)).get("accepted")
    known = accepted.get("runtimeId") if isinstance(accepted, Mapping) else None
    return replace(job, runtime_id=known) if job.runtime_id and known and isinstance(known, str) else job


def _kept_until_it_expires(framework: Framework, observed: Observed, status: JobStatus, now: dt.datetime) -> Step:
    """A job that never made sense is deleted at the time that it says, like any other."""
    due = None if observed.taken.guess is None else expires_at(observed.taken.guess, status)
    if due is not None and due <= now:
        return Step(deletes=[delete_job(framework, observed)])
    return Step(wake_at=due)


def _fields(observed: Observed, status: JobStatus, dialect: Dialect) -> dict[str, Json]:
    """Without a job there is little that can be said; what stands there otherwise is kept."""
    recorded = status_of(observed.object)
    there = tarragon_of(recorded)
    ours: dict[str, Json] = {**there, "observedGeneration": observed.object.metadata.generation}
    if not dialect.has_conditions:
        record = there.get("record")
        ours["record"] = {**(record if isinstance(record, Mapping) else {}), **classic.refused(status)}
    if status.phase is Phase.FAILED:
        why = reason_of(status)
        ours |= {"generation": dialect.name, "state": Phase.FAILED.value, "reason": why.word, "message": why.message}
    return {**recorded, **dialect.refused(status), "tarragon": ours}
