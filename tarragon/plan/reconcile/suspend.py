"""Suspends a job, which releases everything it holds, and resumes it, which queues it again."""

from __future__ import annotations

from dataclasses import replace

from tarragon.job import conditions
from tarragon.job.conditions import ConditionUpdate, set_condition
from tarragon.job.phase import JobSignal, Phase, next_phase
from tarragon.job.status import JobStatus, ReplicaStatus
from tarragon.plan.lifecycle.gang_restart import dissolve_gang
from tarragon.plan.lifecycle.graceful_eviction import delete_pod
from tarragon.plan.lifecycle.pod_control import delete_service
from tarragon.plan.status.creation_failures import clear_blocked
from tarragon.plan.status.outcome import (
    record_finished,
    record_restarts,
    report_spec_problems,
    set_admission_refused,
    set_admitted,
    set_created,
)
from tarragon.plan.status.patch import events_for, status_patch
from tarragon.plan.status.resizes import clear_size
from tarragon.plan.status.work import record_work
from tarragon.plan.view.actions import Actions
from tarragon.plan.view.job_view import JobView

JOB_SUSPENDED = "the job is suspended"


def reconcile_suspended(view: JobView) -> Actions | None:
    """Return the step that suspends the job; None when it should not be suspended or has already ended.

    The same write that sets Suspended removes the admission: otherwise its capacity would be allocated twice.
    """
    if not view.job.run_policy.suspend or view.framework.evaluate(view.framework_view).signal in {
        JobSignal.SUCCEEDED,
        JobSignal.FAILED,
    }:
        return None
    status = _suspended_status(view)
    pods = [delete_pod(pod, JOB_SUSPENDED) for pod in view.own_pods if not pod.metadata.is_being_deleted]
    services = [
        delete_service(service, JOB_SUSPENDED) for service in view.own_services if not service.metadata.is_being_deleted
    ]
    return Actions(status_patch=status_patch(view, status), deletes=pods + services, events=events_for(view, status))


def reconcile_resumed(view: JobView) -> Actions | None:
    """Return the step that resumes the job. Its active deadline and its position in the queue start afresh."""
    if view.recorded_status.phase is not Phase.SUSPENDED or view.job.run_policy.suspend:
        return None
    message = f"{view.job.kind} {view.job.key.name} is resumed"
    said = ConditionUpdate(conditions.SUSPENDED, False, view.dialect.condition_reason(conditions.RESUMED), message)
    status = replace(
        view.recorded_status,
        phase=next_phase(view.recorded_status.phase, JobSignal.RESUMED),
        conditions=set_condition(view.recorded_status.conditions, said, view.now),
        start_time=None,
    )
    return Actions(status_patch=status_patch(view, status), events=events_for(view, status))


def _suspended_status(view: JobView) -> JobStatus:
    gang = view.recorded_status.gang_round
    status = replace(
        view.recorded_status, admission=None, gang_round=None if gang is None else dissolve_gang(view, gang)
    )
    status = clear_size(clear_blocked(status))
    for rule in (
        set_created,
        report_spec_problems,
        set_admitted,
        set_admission_refused,
        record_restarts,
        record_finished,
    ):
        status = rule(view, status)
    message = f"{view.job.kind} {view.job.key.name} is suspended"
    said = ConditionUpdate(conditions.SUSPENDED, True, view.dialect.condition_reason(conditions.SUSPENDED), message)
    suspended = replace(
        status,
        phase=next_phase(status.phase, JobSignal.SUSPENDED),
        conditions=set_condition(status.conditions, said, view.now),
        replica_statuses={
            kind: ReplicaStatus(succeeded=_succeeded(status, kind)) for kind in view.job.requested_size()
        },
        running_replicas=0,
    )
    return record_work(view, suspended)


def _succeeded(status: JobStatus, kind: object) -> int:
    return sum(replica.type == kind for replica in status.succeeded_replicas)
