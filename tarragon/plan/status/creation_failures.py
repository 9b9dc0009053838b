"""Records what keeps a job's pods from being created, bound or started, with the message of its source."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

from tarragon.job import conditions
from tarragon.job.conditions import Said, with_condition, without_condition
from tarragon.job.member import Fate
from tarragon.job.status import NOWHERE, JobStatus, Obstacle
from tarragon.kube.core import Pod
from tarragon.plan.lifecycle.displacement import is_refused
from tarragon.plan.lifecycle.pod_control import closed_places, is_awaiting_a_pod, taken_names
from tarragon.plan.objects.settings import Settings
from tarragon.plan.status.stalled import Told, delay, hindrance, next_told
from tarragon.plan.view.actions import NAME_TAKEN, REFUSED
from tarragon.plan.view.job_view import Scene

UNSCHEDULABLE = "Unschedulable"
"""The reason that kube-scheduler sets on pods; reused as the obstacle's reason."""
NODE_FULL = "NodeFull"
NODE_AWAY = "NodeAway"
LONGEST_LIST = 8
OTHERS_ARE_LOOKED_AT_SECONDS = 5
"""Polling interval: changes of other owners' objects and of nodes do not wake the job. A look at the cache is cheap."""


def obstructed(view: Scene, status: JobStatus) -> JobStatus:
    """Set or clear the obstacle and the condition Blocked.

    The time since when is on record, so that a restarted operator does not start counting again.
    """
    if not view.may_run:
        return unobstructed(status)
    recorded = _current_obstacle(status)
    found = _find_obstacle(view, status)
    if found is None:
        # The refused creates are being retried, and the new pods may exist before the cache shows them.
        return status if recorded is not None and is_awaiting_a_pod(view, status) else unobstructed(status)
    reason, message = found
    since = view.now if recorded is None else recorded.since
    return replace(
        status,
        obstacle=Obstacle(since=since, reason=reason, message=message),
        conditions=with_condition(status.conditions, Said(conditions.BLOCKED, True, reason, message), view.now),
    )


def unobstructed(status: JobStatus) -> JobStatus:
    return replace(
        status, obstacle=None, conditions=without_condition(_without_stalled(status).conditions, conditions.BLOCKED)
    )


def stalled(view: Scene, status: JobStatus) -> JobStatus:
    """Set or clear the condition Stalled: what delays existing pods, but does not count towards the start timeout."""
    recorded = status.condition(conditions.STALLED)
    report = (
        delay(view, None if recorded is None else Told(recorded.reason, recorded.message)) if view.may_run else None
    )
    if report is None:
        return _without_stalled(status)
    said = Said(conditions.STALLED, True, report.reason, report.message)
    return replace(status, conditions=with_condition(status.conditions, said, view.now))


def _without_stalled(status: JobStatus) -> JobStatus:
    return replace(status, conditions=without_condition(status.conditions, conditions.STALLED))


def patience_for(obstacle: Obstacle | None, settings: Settings) -> float:
    """Return the start timeout in seconds. Pods that exist get longer: recreating them costs more than waiting."""
    is_early = obstacle is None or obstacle.reason in {REFUSED, NAME_TAKEN, UNSCHEDULABLE, NODE_FULL}
    return settings.patience if is_early else settings.start_patience


def look_again_at(view: Scene, status: JobStatus) -> dt.datetime | None:
    """Return when to look at the obstacle again, or to retry, although no watch event may arrive; None for never."""
    times = [next_told(view) if view.may_run else None]
    if status.obstacle is not None:
        refusal = view.observed.refusal
        times.append(refusal.again if refusal is not None and refusal.again > view.now else None)
        if status.obstacle.reason in {NAME_TAKEN, NODE_AWAY}:
            times.append(view.now + dt.timedelta(seconds=OTHERS_ARE_LOOKED_AT_SECONDS))
    return min((at for at in times if at is not None), default=None)


def _current_obstacle(status: JobStatus) -> Obstacle | None:
    """Return the recorded obstacle if it concerns the current admission and not an earlier one."""
    admission, recorded = status.admission, status.obstacle
    if recorded is None or admission is None or admission.admitted is None:
        return recorded
    return recorded if recorded.since >= admission.admitted else None


def _find_obstacle(view: Scene, status: JobStatus) -> tuple[str, str] | None:
    conflicting = taken_names(view, status)
    if conflicting:
        names = ", ".join(conflicting[:LONGEST_LIST])
        return NAME_TAKEN, f"objects of other owners already use the names {names}; the job waits until they are free"
    refusal = view.observed.refusal
    if refusal is not None and is_awaiting_a_pod(view, status):
        return refusal.reason, refusal.message
    return _node_unavailable(view) or _not_bound(view) or _node_rejects(view, status) or _not_startable(view, status)


def _not_startable(view: Scene, status: JobStatus) -> tuple[str, str] | None:
    recorded = status.obstacle
    report = hindrance(view, None if recorded is None else Told(recorded.reason, recorded.message))
    return None if report is None else (report.reason, report.message)


def _node_unavailable(view: Scene) -> tuple[str, str] | None:
    """Report replicas whose pod is gone and whose node accepts no new one: the scheduler looks for another node."""
    rejecting = closed_places(view)
    first = min(rejecting, default=None)
    if first is None:
        return None
    more = f" (and {len(rejecting) - 1} more)" if len(rejecting) > 1 else ""
    return NODE_AWAY, f"{first}{more} needs another node: {rejecting[first]}"


def _not_bound(view: Scene) -> tuple[str, str] | None:
    """Report pods that kube-scheduler can't bind to their assigned nodes."""
    if not view.needs_admission:
        return None
    for member in view.members.values():
        message = unschedulable(member.pod) if member.fate is Fate.GOES_ON else None
        if message is not None:
            return UNSCHEDULABLE, f"pod {member.pod.metadata.name} can't be bound: {message}"
    return None


def _node_rejects(view: Scene, status: JobStatus) -> tuple[str, str] | None:
    """Report pods that their assigned node rejected, because other pods came first, until it accepts one."""
    admission = status.admission
    if admission is None or admission.admitted is None or not view.needs_admission:
        return None
    for replica, record in status.restarts.items():
        node = admission.nodes.get(replica, NOWHERE)
        if not is_refused(record, node, admission):
            continue
        member = view.members.get(replica)
        if member is None or member.fate is not Fate.GOES_ON or not member.pod.status.container_statuses:
            return NODE_FULL, f"node {node} rejected {replica}: {record.reason}"
    return None


def unschedulable(pod: Pod) -> str | None:
    """Return kube-scheduler's message if it found no node for the pod."""
    scheduled = pod.condition("PodScheduled")
    if pod.spec.node_name or scheduled is None or scheduled.status != "False" or scheduled.reason != UNSCHEDULABLE:
        return None
    return scheduled.message
