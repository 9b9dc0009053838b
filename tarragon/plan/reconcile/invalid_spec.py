"""Invalid jobs: reports every problem once; a job that has started runs on with its last valid spec."""

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


def refused(framework: Framework, observed: Observed, decoded: Intake, now: dt.datetime) -> Step | None:
    """Return the step that reports an invalid job; None when there is a valid spec to go on with.

    A new job fails. A job that has started does not: one typo in an edit must not lose days of training. Nor does a job
    whose generation annotation is unknown: another version of Tarragon wrote it.
    """
    if decoded.job is not None:
        return None
    before = recall(observed.object.status).status
    if before.phase.is_final:
        return _delete_when_expired(framework, observed, before, now)
    owner = observed.object.as_owner
    has_started = before.started is not None or any(is_of(pod, owner) for pod in observed.pods)
    dialect = decoded.dialect or framework.dialects[-1]
    kind = conditions.SPEC_REFUSED if has_started or decoded.dialect is None else conditions.FAILED
    said = Said(kind, True, dialect.condition_reason(conditions.INVALID), words(decoded.problems))
    status = replace(before, conditions=with_condition(before.conditions, said, now))
    if kind == conditions.FAILED:
        status = replace(status, phase=Phase.FAILED, completed=now)
    reference = ObjectReference(
        api_version=framework.resource.api_version,
        kind=framework.kind,
        key=observed.object.metadata.key,
        uid=owner.uid,
    )
    patch = conditional(observed.object, _status_fields(observed, status, dialect))
    return Step(status=patch, events=list(changes(reference, before, status)) if patch is not None else ())


def last_good(framework: Framework, found: CustomObject, decoded: Intake) -> Intake:
    """Return `decoded` with the last accepted spec in place of an invalid one, if it is on record."""
    metadata = found.metadata
    decoded = _with_unsupported_as_problems(found, decoded)
    if decoded.job is not None or decoded.dialect is None:
        return decoded
    identity = Identity(
        kind=framework.kind,
        api_version=decoded.dialect.api_version,
        generation=decoded.dialect.name,
        key=metadata.key,
        uid=metadata.uid,
    )
    job = accepted_job(tarragon_of(status_of(found)).get("accepted"), identity)
    return decoded if job is None else replace(decoded, job=suspended(job, found.spec))


def _with_unsupported_as_problems(found: CustomObject, decoded: Intake) -> Intake:
    """Return `decoded` with unsupported features counted as problems, unless the job has started.

    A job that has started was accepted by an earlier version of the operator, which did not check for them. It runs on
    and its lost pods are replaced: upgrading the operator must not end training.
    """
    if not decoded.unsupported:
        return decoded
    before = recall(found.status).status
    if decoded.job is not None and (before.started is not None or before.is_admitted):
        return decoded
    return replace(decoded, job=None, problems=decoded.refusals, unsupported=())


def begun_as(job: TrainingJob, found: CustomObject) -> TrainingJob:
    """Return the job with the recorded runtime ID: `kubectl replace` drops annotations and a generated ID."""
    accepted = tarragon_of(status_of(found)).get("accepted")
    runtime_id = accepted.get("runtimeId") if isinstance(accepted, Mapping) else None
    return replace(job, runtime_id=runtime_id) if job.runtime_id and runtime_id and isinstance(runtime_id, str) else job


def _delete_when_expired(framework: Framework, observed: Observed, status: JobStatus, now: dt.datetime) -> Step:
    """An invalid job is deleted after its ttlSecondsAfterFinished like any other, if that field could be read."""
    due = None if observed.taken.guess is None else expires_at(observed.taken.guess, status)
    if due is not None and due <= now:
        return Step(deletes=[delete_job(framework, observed)])
    return Step(wake_at=due)


def _status_fields(observed: Observed, status: JobStatus, dialect: Dialect) -> dict[str, Json]:
    """Return the status fields that can be written without a decoded job; all other recorded fields are kept."""
    recorded = status_of(observed.object)
    recorded_fields = tarragon_of(recorded)
    ours: dict[str, Json] = {**recorded_fields, "observedGeneration": observed.object.metadata.generation}
    if not dialect.has_conditions:
        record = recorded_fields.get("record")
        ours["record"] = {**(record if isinstance(record, Mapping) else {}), **classic.refused(status)}
    if status.phase is Phase.FAILED:
        failure = reason_of(status)
        ours |= {
            "generation": dialect.name,
            "state": Phase.FAILED.value,
            "reason": failure.word,
            "message": failure.message,
        }
    return {**recorded, **dialect.refused(status), "tarragon": ours}
