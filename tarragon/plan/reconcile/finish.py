"""Finished jobs: cleans up their pods and services by policy, and deletes the job after ttlSecondsAfterFinished."""

from __future__ import annotations

from dataclasses import replace

from tarragon.job import conditions
from tarragon.job.leaving import leaves_at
from tarragon.job.model import CleanPodPolicy
from tarragon.job.status import JobStatus, ReplicaCounts
from tarragon.kube.core import Pod
from tarragon.plan.lifecycle.graceful_eviction import delete_pod
from tarragon.plan.lifecycle.pod_control import delete_job, delete_service
from tarragon.plan.status.limits import Limit, expires_at
from tarragon.plan.status.outcome import counted, finishes_recorded
from tarragon.plan.status.patch import status_patch
from tarragon.plan.view.actions import Delete, Step
from tarragon.plan.view.job_view import Scene

HAS_ENDED = "the job has finished"


def finished(view: Scene) -> Step | None:
    """Return the step for a finished job; None for any other.

    The admission stays on record: the ledger counts nothing for a finished job, whatever its admission says.
    """
    if not view.before.phase.is_final:
        return None
    due = expires_at(view.job, view.before)
    if due is not None and due <= view.now:
        return Step(deletes=[delete_job(view.framework, view.observed)])
    return Step(status=status_patch(view, _with_current_counts(view)), deletes=clean_up(view, view.before), wake_at=due)


def clean_up(view: Scene, status: JobStatus) -> list[Delete]:
    """Delete pods as the clean-up policy says, and all services: nothing resolves their names any more."""
    pods = [
        delete_pod(pod, HAS_ENDED)
        for pod in view.own_pods
        if _is_cleaned_up(pod, view.job.run_policy.clean_pods, status)
    ]
    services = [delete_service(service, HAS_ENDED) for service in view.own_services if not service.metadata.is_ending]
    return pods + services


def _is_cleaned_up(pod: Pod, policy: CleanPodPolicy, status: JobStatus) -> bool:
    if pod.metadata.is_ending:
        return False
    if leaves_at(pod) is not None:
        return True  # It was already being evicted, and no replica is left that would use its checkpoint.
    if policy is CleanPodPolicy.ALL:
        return True
    return not pod.is_finished and (policy is CleanPodPolicy.RUNNING or _failed_by_limit(status))


def _failed_by_limit(status: JobStatus) -> bool:
    failed = status.condition(conditions.FAILED)
    return failed is not None and failed.reason in Limit.REASONS


def _with_current_counts(view: Scene) -> JobStatus:
    """Return the status with current counts of active pods; failures stay counted when their pods are gone."""
    before = view.before
    status = counted(view, finishes_recorded(view, before))
    counts = {
        kind: replace(count, failed=max(count.failed, before.counts.get(kind, ReplicaCounts()).failed))
        for kind, count in status.counts.items()
    }
    return replace(status, counts=counts)
