"""What is left to do for a job that has ended: clean up by its policy, and delete it when its time has come."""

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

HAS_ENDED = "the job has ended"


def finished(scene: Scene) -> Step | None:
    """The admission stays on record: what has ended holds nothing, whatever stands there."""
    if not scene.before.phase.is_final:
        return None
    due = expires_at(scene.job, scene.before)
    if due is not None and due <= scene.now:
        return Step(deletes=[delete_job(scene.framework, scene.observed)])
    return Step(status=status_patch(scene, _recounted(scene)), deletes=clean_up(scene, scene.before), wake_at=due)


def clean_up(scene: Scene, status: JobStatus) -> list[Delete]:
    """Services always go: nobody asks for their names any more, and leaked ones have clogged clusters."""
    pods = [delete_pod(pod, HAS_ENDED) for pod in scene.own_pods if _goes(pod, scene.job.run_policy.clean_pods, status)]
    services = [delete_service(service, HAS_ENDED) for service in scene.own_services if not service.metadata.is_ending]
    return pods + services


def _goes(pod: Pod, policy: CleanPodPolicy, status: JobStatus) -> bool:
    if pod.metadata.is_ending:
        return False
    if leaves_at(pod) is not None:
        return True  # It was to go anyway, and there is nobody left for whom it saves.
    if policy is CleanPodPolicy.ALL:
        return True
    return not pod.is_finished and (policy is CleanPodPolicy.RUNNING or _ended_by_limit(status))


def _ended_by_limit(status: JobStatus) -> bool:
    failed = status.condition(conditions.FAILED)
    return failed is not None and failed.reason in Limit.REASONS


def _recounted(scene: Scene) -> JobStatus:
    """Who still runs is told truly; failures stay counted when their pods are gone."""
    before = scene.before
    now = counted(scene, finishes_recorded(scene, before))
    counts = {
        kind: replace(seen, failed=max(seen.failed, before.counts.get(kind, ReplicaCounts()).failed))
        for kind, seen in now.counts.items()
    }
    return replace(now, counts=counts)
