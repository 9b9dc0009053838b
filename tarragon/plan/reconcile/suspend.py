"""Suspending a job, which gives everything back, and resuming it, which queues it anew."""

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


def suspended(scene: Scene) -> Step | None:
    """The admission goes in the same write that says Suspended: a kept one would sell its places twice.

    An end that came first is an end.
    """
    if not scene.job.run_policy.suspend or scene.framework.judge(scene.sight).signal in {
        Signal.SUCCEEDED,
        Signal.FAILED,
    }:
        return None
    status = _suspended(scene)
    pods = [delete_pod(pod, IS_SUSPENDED) for pod in scene.own_pods if not pod.metadata.is_ending]
    services = [
        delete_service(service, IS_SUSPENDED) for service in scene.own_services if not service.metadata.is_ending
    ]
    return Step(status=status_patch(scene, status), deletes=pods + services, events=news(scene, status))


def resumed(scene: Scene) -> Step | None:
    """Its time to run begins anew, and so does its place in the queue."""
    if scene.before.phase is not Phase.SUSPENDED or scene.job.run_policy.suspend:
        return None
    message = f"{scene.job.kind} {scene.job.key.name} is resumed"
    said = Said(conditions.SUSPENDED, False, scene.dialect.condition_reason(conditions.RESUMED), message)
    status = replace(
        scene.before,
        phase=after(scene.before.phase, Signal.RESUMED),
        conditions=with_condition(scene.before.conditions, said, scene.now),
        started=None,
    )
    return Step(status=status_patch(scene, status), events=news(scene, status))


def _suspended(scene: Scene) -> JobStatus:
    gang = scene.before.gang
    status = replace(scene.before, admission=None, gang=None if gang is None else dissolved(scene, gang))
    status = unsized(unobstructed(status))
    for rule in (created, understood, admitted, refused_admission, restarts_recorded, finishes_recorded):
        status = rule(scene, status)
    message = f"{scene.job.kind} {scene.job.key.name} is suspended"
    said = Said(conditions.SUSPENDED, True, scene.dialect.condition_reason(conditions.SUSPENDED), message)
    return replace(
        status,
        phase=after(status.phase, Signal.SUSPENDED),
        conditions=with_condition(status.conditions, said, scene.now),
        counts={kind: ReplicaCounts(succeeded=_succeeded(status, kind)) for kind in scene.job.wished()},
        ready=0,
    )


def _succeeded(status: JobStatus, kind: object) -> int:
    return sum(replica.type is kind for replica in status.finished)
