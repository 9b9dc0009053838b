"""Invalid jobs: reports every problem once; a job that has started runs on with its last valid spec."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace

from tarragon.frameworks.plugin import Dialect, Framework
from tarragon.job import conditions, training_operator_status
from tarragon.job.conditions import ConditionUpdate, set_condition
from tarragon.job.last_valid_spec import JobIdentity, decode_job, with_suspend
from tarragon.job.model import TrainingJob
from tarragon.job.phase import Phase
from tarragon.job.status import JobStatus
from tarragon.job.status_encoding import recorded_status, status_of
from tarragon.job.status_reason import reason_of
from tarragon.kube.event import reference_to
from tarragon.kube.meta import CustomObject, Json
from tarragon.plan.input.decode_and_validate import DecodedJob, join_problems
from tarragon.plan.lifecycle.pod_control import delete_job
from tarragon.plan.status.limits import expires_at
from tarragon.plan.status.patch import condition_events, conditional_status_patch, tarragon_of
from tarragon.plan.view.actions import Actions, ObservedJob
from tarragon.plan.view.job_view import is_controlled_by


def reconcile_invalid(
    framework: Framework, observed: ObservedJob, decoded: DecodedJob, now: dt.datetime
) -> Actions | None:
    """Return the step that reports an invalid job; None when there is a valid spec to go on with.

    A new job fails. A job that has started does not: one typo in an edit must not lose days of training. Nor does a job
    whose generation annotation is unknown: another version of Tarragon wrote it.
    """
    if decoded.job is not None:
        return None
    before = recorded_status(observed.object)
    if before.phase.is_final:
        return _delete_when_expired(framework, observed, before, now)
    owner = observed.object.owner_identity
    has_started = before.start_time is not None or any(is_controlled_by(pod, owner) for pod in observed.pods)
    dialect = decoded.dialect or framework.dialects[-1]
    kind = conditions.SPEC_INVALID if has_started or decoded.dialect is None else conditions.FAILED
    said = ConditionUpdate(kind, True, dialect.condition_reason(conditions.INVALID), join_problems(decoded.problems))
    status = replace(before, conditions=set_condition(before.conditions, said, now))
    if kind == conditions.FAILED:
        status = replace(status, phase=Phase.FAILED, completion_time=now)
    reference = reference_to(framework.resource, observed.object)
    patch = conditional_status_patch(observed.object, _status_fields(observed, status, dialect))
    return Actions(
        status_patch=patch, events=list(condition_events(reference, before, status)) if patch is not None else ()
    )


def with_last_valid_spec(framework: Framework, found: CustomObject, decoded: DecodedJob) -> DecodedJob:
    """Return `decoded` with the last accepted spec in place of an invalid one, if it is on record."""
    metadata = found.metadata
    if decoded.job is not None or decoded.dialect is None:
        return decoded
    identity = JobIdentity(
        kind=framework.kind,
        api_version=decoded.dialect.api_version,
        generation=decoded.dialect.name,
        key=metadata.key,
        uid=metadata.uid,
    )
    job = decode_job(tarragon_of(status_of(found)).get("accepted"), identity, framework.roles)
    return decoded if job is None else replace(decoded, job=with_suspend(job, found.spec))


def with_recorded_runtime_id(job: TrainingJob, found: CustomObject) -> TrainingJob:
    """Return the job with the recorded runtime ID: `kubectl replace` drops annotations and a generated ID."""
    accepted = tarragon_of(status_of(found)).get("accepted")
    runtime_id = accepted.get("runtimeId") if isinstance(accepted, Mapping) else None
    return replace(job, runtime_id=runtime_id) if job.runtime_id and runtime_id and isinstance(runtime_id, str) else job


def _delete_when_expired(framework: Framework, observed: ObservedJob, status: JobStatus, now: dt.datetime) -> Actions:
    """An invalid job is deleted after its ttlSecondsAfterFinished like any other, if that field could be read."""
    due = None if observed.decoded.partial_job is None else expires_at(observed.decoded.partial_job, status)
    if due is not None and due <= now:
        return Actions(deletes=[delete_job(framework, observed)])
    return Actions(requeue_at=due)


def _status_fields(observed: ObservedJob, status: JobStatus, dialect: Dialect) -> dict[str, Json]:
    """Return the status fields that can be written without a decoded job; all other recorded fields are kept."""
    recorded = status_of(observed.object)
    recorded_fields = tarragon_of(recorded)
    ours: dict[str, Json] = {**recorded_fields, "observedGeneration": observed.object.metadata.generation}
    if not dialect.has_conditions:
        record = recorded_fields.get("record")
        ours["record"] = {
            **(record if isinstance(record, Mapping) else {}),
            **training_operator_status.invalid_job_fields(status),
        }
    if status.phase is Phase.FAILED:
        failure = reason_of(status)
        ours |= {
            "generation": dialect.name,
            "state": Phase.FAILED.value,
            "reason": failure.reason,
            "message": failure.message,
        }
    fields = {**training_operator_status.conditions_field(status), **dialect.invalid_job_fields(status)}
    return {**recorded, **fields, "tarragon": ours}
