"""Finished jobs: cleans up their pods and services by policy, and deletes the job after ttlSecondsAfterFinished."""

from __future__ import annotations

from dataclasses import replace

from tarragon.job import conditions
from tarragon.job.eviction_notice import eviction_time
from tarragon.job.model import CleanPodPolicy
from tarragon.job.replica_state import has_only_sidecars_left
from tarragon.job.status import JobStatus, ReplicaStatus
from tarragon.kube.core import Pod
from tarragon.plan.lifecycle.graceful_eviction import delete_pod
from tarragon.plan.lifecycle.pod_control import delete_job, delete_service
from tarragon.plan.status.limits import ExceededLimit, expires_at
from tarragon.plan.status.outcome import count_replicas, record_finished
from tarragon.plan.status.patch import status_patch
from tarragon.plan.view.actions import Actions, Delete
from tarragon.plan.view.job_view import JobView

JOB_FINISHED = "the job has finished"


def reconcile_finished(view: JobView) -> Actions | None:
    """Return the step for a finished job; None for any other.

    The admission stays on record: the ledger counts nothing for a finished job, whatever its admission says.
    """
    if not view.recorded_status.phase.is_final:
        return None
    due = expires_at(view.job, view.recorded_status)
    if due is not None and due <= view.now:
        return Actions(deletes=[delete_job(view.framework, view.observed)])
    return Actions(
        status_patch=status_patch(view, _with_current_counts(view)),
        deletes=clean_up(view, view.recorded_status),
        requeue_at=due,
    )


def clean_up(view: JobView, status: JobStatus) -> list[Delete]:
    """Delete pods as the clean-up policy says, and all services: nothing resolves their names any more."""
    pods = [
        delete_pod(pod, JOB_FINISHED)
        for pod in view.own_pods
        if _is_cleaned_up(pod, _clean_pod_policy(view, pod), status)
    ]
    services = [
        delete_service(service, JOB_FINISHED) for service in view.own_services if not service.metadata.is_being_deleted
    ]
    return pods + services


def _clean_pod_policy(view: JobView, pod: Pod) -> CleanPodPolicy:
    replica = view.dialect.names.replica_of(view.job, pod.metadata.name)
    group = None if replica is None else view.job.replica_spec(replica.type)
    is_kept = group is not None and group.role.is_kept_for_logs
    return CleanPodPolicy.NONE if is_kept else view.job.run_policy.clean_pod_policy


def _is_cleaned_up(pod: Pod, policy: CleanPodPolicy, status: JobStatus) -> bool:
    if pod.metadata.is_being_deleted:
        return False
    if eviction_time(pod) is not None:
        return True  # It was already being evicted, and no replica is left that would use its checkpoint.
    if policy is CleanPodPolicy.ALL:
        return True
    is_running = not pod.is_finished and not has_only_sidecars_left(pod)
    return is_running and (policy is CleanPodPolicy.RUNNING or _failed_by_limit(status))


def _failed_by_limit(status: JobStatus) -> bool:
    failed = status.condition(conditions.FAILED)
    return failed is not None and failed.reason in ExceededLimit.REASONS


def _with_current_counts(view: JobView) -> JobStatus:
    """Return the status with current counts of active pods; failures stay counted when their pods are gone."""
    before = view.recorded_status
    status = count_replicas(view, record_finished(view, before))
    counts = {
        kind: replace(count, failed=max(count.failed, before.replica_statuses.get(kind, ReplicaStatus()).failed))
        for kind, count in status.replica_statuses.items()
    }
    return replace(status, replica_statuses=counts)
