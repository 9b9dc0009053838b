"""Records what keeps a job's pods from being created, bound or started, with the message of its source."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

from tarragon.job import conditions
from tarragon.job.conditions import ConditionUpdate, remove_condition, set_condition
from tarragon.job.places import node_of
from tarragon.job.replica_state import ReplicaAction
from tarragon.job.status import UNASSIGNED, JobStatus, Obstacle
from tarragon.kube.core import Pod
from tarragon.plan.lifecycle.displacement import was_rejected_by_node
from tarragon.plan.lifecycle.owned_object_control import unreadable_kinds
from tarragon.plan.lifecycle.pod_control import (
    conflicting_names,
    has_missing_objects,
    rejecting_nodes,
    waits_for_gpus,
)
from tarragon.plan.lifecycle.start_timeout import is_current
from tarragon.plan.objects.settings import OperatorSettings
from tarragon.plan.status.stall_report import image_pull_errors, next_report_at, report_blocking_stalls, report_delays
from tarragon.plan.view.actions import NAME_TAKEN, REFUSED, REFUSED_FOR_GATES
from tarragon.plan.view.job_view import JobView

UNSCHEDULABLE = "Unschedulable"
"""The reason that kube-scheduler sets on pods; reused as the obstacle's reason."""
NODE_FULL = "NodeFull"
NODE_UNAVAILABLE = "NodeAway"
GPU_NOT_READY = "GpuNotReady"
"""It is not known yet which GPU a replica gets: perhaps no anchor pod holds it."""
GPU_NOT_FREE = "GpuNotFree"
"""The node has rejected the anchor pod, or has no GPU left that HAMi may give to the replica."""
PREVENTS_CREATION = frozenset({REFUSED, REFUSED_FOR_GATES, NAME_TAKEN, NODE_UNAVAILABLE, GPU_NOT_READY, GPU_NOT_FREE})
"""Obstacles of replicas that have no pod. All others concern pods that exist."""
_POLLED = frozenset({NAME_TAKEN, NODE_UNAVAILABLE, GPU_NOT_READY, GPU_NOT_FREE})
MAX_LISTED_NAMES = 8
ANCHOR_DELAY = dt.timedelta(seconds=30)
"""A healthy node starts an anchor within this time; a longer wait is reported."""
POLL_SECONDS = 5
"""Polling interval: changes of other owners' objects and of nodes do not wake the job. A look at the cache is cheap."""


def set_blocked(view: JobView, status: JobStatus) -> JobStatus:
    """Set or clear the obstacle and the condition Blocked.

    The time since when is on record, so that a restarted operator does not start counting again.
    """
    if not view.may_run:
        return clear_blocked(status)
    recorded = _current_obstacle(status)
    found = _find_obstacle(view, status)
    if found is None:
        # The refused creates are being retried, and the new pods may exist before the cache shows them.
        return status if recorded is not None and has_missing_objects(view, status) else clear_blocked(status)
    reason, message = found
    since = view.now if recorded is None else recorded.since
    return replace(
        status,
        obstacle=Obstacle(since=since, reason=reason, message=message),
        conditions=set_condition(
            status.conditions, ConditionUpdate(conditions.BLOCKED, True, reason, message), view.now
        ),
    )


def clear_blocked(status: JobStatus) -> JobStatus:
    return replace(
        status,
        obstacle=None,
        image_pull_errors={},
        conditions=remove_condition(_without_stalled(status).conditions, conditions.BLOCKED),
    )


def set_stalled(view: JobView, status: JobStatus) -> JobStatus:
    """Set or clear the condition Stalled: what delays existing pods, but does not count towards the start timeout."""
    report = report_delays(view, status) if view.may_run else None
    if report is None:
        return _without_stalled(status)
    said = ConditionUpdate(conditions.STALLED, True, report.reason, report.message)
    return replace(status, conditions=set_condition(status.conditions, said, view.now))


def record_image_pull_errors(view: JobView, status: JobStatus) -> JobStatus:
    return replace(status, image_pull_errors=image_pull_errors(view) if view.may_run else {})


def _without_stalled(status: JobStatus) -> JobStatus:
    return replace(status, conditions=remove_condition(status.conditions, conditions.STALLED))


def timeout_for(obstacle: Obstacle | None, settings: OperatorSettings) -> float:
    """Return the start timeout in seconds. Pods that exist get longer: recreating them costs more than waiting."""
    early = {REFUSED, REFUSED_FOR_GATES, NAME_TAKEN, UNSCHEDULABLE, NODE_FULL, GPU_NOT_FREE}
    is_early = obstacle is None or obstacle.reason in early
    return settings.creation_timeout if is_early else settings.start_timeout


def next_check_at(view: JobView, status: JobStatus) -> dt.datetime | None:
    """Return when to look at the obstacle again, or to retry, although no watch event may arrive; None for never."""
    times = [next_report_at(view, status) if view.may_run else None, _next_gpu_report_at(view, status)]
    if status.obstacle is not None:
        refusal = view.observed.rejected_create
        times.append(refusal.retry_at if refusal is not None and refusal.retry_at > view.now else None)
        if status.obstacle.reason in _POLLED or view.observed.unreadable_kinds:
            times.append(view.now + dt.timedelta(seconds=POLL_SECONDS))
    return min((at for at in times if at is not None), default=None)


def _current_obstacle(status: JobStatus) -> Obstacle | None:
    """Return the recorded obstacle if it concerns the current admission and size, and not earlier ones."""
    admission, recorded = status.admission, status.obstacle
    if recorded is None or admission is None or admission.admitted_at is None:
        return recorded
    return recorded if is_current(recorded, admission) else None


def _find_obstacle(view: JobView, status: JobStatus) -> tuple[str, str] | None:
    conflicting = conflicting_names(view, status)
    if conflicting:
        names = ", ".join(conflicting[:MAX_LISTED_NAMES])
        return NAME_TAKEN, f"objects of other owners already use the names {names}; the job waits until they are free"
    refusal = _refusal(view)
    if refusal is not None and has_missing_objects(view, status):
        return refusal
    return (
        _node_unavailable(view)
        or _not_bound(view)
        or _node_rejects(view, status)
        or _gpu_not_ready(view, status)
        or _not_startable(view)
    )


def _refusal(view: JobView) -> tuple[str, str] | None:
    unreadable = unreadable_kinds(view)
    if unreadable:
        kinds = " and ".join(unreadable)
        return REFUSED, f"the operator may not list and watch {kinds}; the job waits until its role allows it"
    refusal = view.observed.rejected_create
    return None if refusal is None else (refusal.reason, refusal.message)


def _not_startable(view: JobView) -> tuple[str, str] | None:
    report = report_blocking_stalls(view)
    return None if report is None else (report.reason, report.message)


def _node_unavailable(view: JobView) -> tuple[str, str] | None:
    """Report replicas whose pod is gone and whose node accepts no new one: the scheduler looks for another node."""
    rejecting = rejecting_nodes(view)
    first = min(rejecting, default=None)
    if first is None:
        return None
    more = f" (and {len(rejecting) - 1} more)" if len(rejecting) > 1 else ""
    return NODE_UNAVAILABLE, f"{first}{more} needs another node: {rejecting[first]}"


def _not_bound(view: JobView) -> tuple[str, str] | None:
    """Report pods that kube-scheduler can't bind to their assigned nodes."""
    if not view.needs_admission:
        return None
    for member in view.members.values():
        message = unschedulable_message(member.pod) if member.action is ReplicaAction.CONTINUE else None
        if message is not None:
            return UNSCHEDULABLE, f"pod {member.pod.metadata.name} can't be bound: {message}"
    return None


def _node_rejects(view: JobView, status: JobStatus) -> tuple[str, str] | None:
    """Report pods that their assigned node rejected, because other pods came first, until it accepts one."""
    admission = status.admission
    if admission is None or admission.admitted_at is None or not view.needs_admission:
        return None
    for replica, record in status.restarts.items():
        place = admission.nodes.get(replica, UNASSIGNED)
        if not was_rejected_by_node(record, place, admission):
            continue
        member = view.members.get(replica)
        if member is None or member.action is not ReplicaAction.CONTINUE or not member.pod.status.container_statuses:
            return NODE_FULL, f"node {node_of(place)} rejected {replica}: {record.reason}"
    return None


def _gpu_not_ready(view: JobView, status: JobStatus) -> tuple[str, str] | None:
    """Report replicas that wait for their GPUs for too long, or in vain."""
    is_late = _is_anchor_late(view, status)
    waits = {replica: wait for replica, wait in waits_for_gpus(view, status) if is_late or wait.is_problem}
    first = min(
        waits,
        key=lambda replica: (not waits[replica].is_rejected, not waits[replica].is_problem, replica),
        default=None,
    )
    if first is None:
        return None
    more = f" (and {len(waits) - 1} more)" if len(waits) > 1 else ""
    return GPU_NOT_FREE if waits[first].is_rejected else GPU_NOT_READY, f"{first}{more} waits: {waits[first].message}"


def _is_anchor_late(view: JobView, status: JobStatus) -> bool:
    admission = status.admission
    return admission is None or admission.admitted_at is None or view.now >= admission.admitted_at + ANCHOR_DELAY


def _next_gpu_report_at(view: JobView, status: JobStatus) -> dt.datetime | None:
    admission = status.admission
    if not view.may_run or admission is None or admission.admitted_at is None or _is_anchor_late(view, status):
        return None
    waits = [wait for _, wait in waits_for_gpus(view, status)]
    if any(wait.is_rejected for wait in waits):
        return view.now + dt.timedelta(seconds=POLL_SECONDS)
    return admission.admitted_at + ANCHOR_DELAY if waits else None


def unschedulable_message(pod: Pod) -> str | None:
    """Return kube-scheduler's message if it found no node for the pod."""
    scheduled = pod.condition("PodScheduled")
    if pod.spec.node_name or scheduled is None or scheduled.status != "False" or scheduled.reason != UNSCHEDULABLE:
        return None
    return scheduled.message
