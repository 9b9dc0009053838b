"""Suspends a job, which releases everything it holds, and resumes it, which queues it again."""

from __future__ import annotations

from dataclasses import replace

from tarragon.job import conditions
from tarragon.job.conditions import Said, with_condition
from tarragon.job.phase import Phase, Signal, after
from tarragon.job.status import JobStatus, ReplicaCounts
from tarragon.plan.lifecycle.gang_restart import dissolved
from tarragon.plan.lifecycle.graceful_eviction import delete_pod
from tarragon.plan.lifecycle.pod_control import delete_service
from tarragon.plan.status.creation_failures import unobstructed
from tarragon.plan.status.outcome import (
    admitted,
    created,
    finishes_recorded,
    refused_admission,
    restarts_recorded,
    understood,
)
from tarragon.plan.status.patch import news, status_patch
from tarragon.plan.status.sizes import unsized
from tarragon.plan.view.actions import Step
from tarragon.plan.view.job_view import Scene

IS_SUSPENDED = "the job is suspended"


def suspended(view: Scene) -> Step | None:
    """Return the step that suspends the job; None when it should not be suspended or has already ended.

    The same write that sets Suspended removes the admission: otherwise its capacity would be allocated twice.
    """
    if not view.job.run_policy.suspend or view.framework.judge(view.sight).signal in {
        Signal.SUCCEEDED,
        Signal.FAILED,
    }:
        return None
    status = _suspended_status(view)
    pods = [delete_pod(pod, IS_SUSPENDED) for pod in view.own_pods if not pod.metadata.is_ending]
    services = [
        delete_service(service, IS_SUSPENDED) for service in view.own_services if not service.metadata.is_ending
    ]
    return Step(status=status_patch(view, status), deletes=pods + services, events=news(view, status))


def resumed(view: Scene) -> Step | None:
    """Return the step that resumes the job. Its active deadline and its position in the queue start afresh."""
    if view.before.phase is not Phase.SUSPENDED or view.job.run_policy.suspend:
        return None
    message = f"{view.job.kind} {view.job.key.name} is resumed"
    said = Said(conditions.SUSPENDED, False, view.dialect.condition_reason(conditions.RESUMED), message)
    status = replace(
        view.before,
        phase=after(view.before.phase, Signal.RESUMED),
        conditions=with_condition(view.before.conditions, said, view.now),
        started=None,
    )
    return Step(status=status_patch(view, status), events=news(view, status))


def _suspended_status(view: Scene) -> JobStatus:
    gang = view.before.gang
    status = replace(view.before, admission=None, gang=None if gang is None else dissolved(view, gang))
    status = unsized(unobstructed(status))
    for rule in (created, understood, admitted, refused_admission, restarts_recorded, finishes_recorded):
        status = rule(view, status)
    message = f"{view.job.kind} {view.job.key.name} is suspended"
    said = Said(conditions.SUSPENDED, True, view.dialect.condition_reason(conditions.SUSPENDED), message)
    return replace(
        status,
        phase=after(status.phase, Signal.SUSPENDED),
        conditions=with_condition(status.conditions, said, view.now),
        counts={kind: ReplicaCounts(succeeded=_succeeded(status, kind)) for kind in view.job.wished()},
        ready=0,
    )


def _succeeded(status: JobStatus, kind: object) -> int:
    return sum(replica.type is kind for replica in status.finished)
