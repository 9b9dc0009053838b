"""What keeps a job's replicas from being made or bound, in the words of whoever does not let them."""

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
"""kube-scheduler's own word, and ours for its words."""
NODE_FULL = "NodeFull"
NODE_AWAY = "NodeAway"
LONGEST_LIST = 8
OTHERS_ARE_LOOKED_AT_SECONDS = 5
"""Of others' objects, and of nodes, no change is told to the job; looking costs no call."""


def obstructed(scene: Scene, status: JobStatus) -> JobStatus:
    """On record since when, so that an operator that dies does not begin to count anew."""
    if not scene.may_run:
        return unobstructed(status)
    known = _known(status)
    found = _found(scene, status)
    if found is None:
        # What was refused last is being tried again, and the pods may be there before they are seen.
        return status if known is not None and is_awaiting_a_pod(scene, status) else unobstructed(status)
    reason, message = found
    since = scene.now if known is None else known.since
    return replace(
        status,
        obstacle=Obstacle(since=since, reason=reason, message=message),
        conditions=with_condition(status.conditions, Said(conditions.BLOCKED, True, reason, message), scene.now),
    )


def unobstructed(status: JobStatus) -> JobStatus:
    return replace(status, obstacle=None, conditions=without_condition(_moving(status).conditions, conditions.BLOCKED))


def stalled(scene: Scene, status: JobStatus) -> JobStatus:
    """Of pods that are there, what keeps them from running, or from being ready, and costs the gang nothing."""
    known = status.condition(conditions.STALLED)
    told = delay(scene, None if known is None else Told(known.reason, known.message)) if scene.may_run else None
    if told is None:
        return _moving(status)
    said = Said(conditions.STALLED, True, told.reason, told.message)
    return replace(status, conditions=with_condition(status.conditions, said, scene.now))


def _moving(status: JobStatus) -> JobStatus:
    return replace(status, conditions=without_condition(status.conditions, conditions.STALLED))


def patience_for(obstacle: Obstacle | None, settings: Settings) -> float:
    """Seconds. What has been made already costs more to make anew, and mends itself more often."""
    is_early = obstacle is None or obstacle.reason in {REFUSED, NAME_TAKEN, UNSCHEDULABLE, NODE_FULL}
    return settings.patience if is_early else settings.start_patience


def look_again_at(scene: Scene, status: JobStatus) -> dt.datetime | None:
    """When what stands in the way has to be looked at, or tried again, though nothing is told of it."""
    times = [next_told(scene) if scene.may_run else None]
    if status.obstacle is not None:
        refusal = scene.observed.refusal
        times.append(refusal.again if refusal is not None and refusal.again > scene.now else None)
        if status.obstacle.reason in {NAME_TAKEN, NODE_AWAY}:
            times.append(scene.now + dt.timedelta(seconds=OTHERS_ARE_LOOKED_AT_SECONDS))
    return min((at for at in times if at is not None), default=None)


def _known(status: JobStatus) -> Obstacle | None:
    """Of the places that the gang has now; an earlier admission's obstacle says nothing of them."""
    admission, known = status.admission, status.obstacle
    if known is None or admission is None or admission.admitted is None:
        return known
    return known if known.since >= admission.admitted else None


def _found(scene: Scene, status: JobStatus) -> tuple[str, str] | None:
    taken = taken_names(scene, status)
    if taken:
        names = ", ".join(taken[:LONGEST_LIST])
        return NAME_TAKEN, f"the names {names} belong to others; the job waits until they are free"
    refusal = scene.observed.refusal
    if refusal is not None and is_awaiting_a_pod(scene, status):
        return refusal.reason, refusal.message
    return _unhoused(scene) or _unbound(scene) or _not_taken(scene, status) or _not_startable(scene, status)


def _not_startable(scene: Scene, status: JobStatus) -> tuple[str, str] | None:
    known = status.obstacle
    told = hindrance(scene, None if known is None else Told(known.reason, known.message))
    return None if told is None else (told.reason, told.message)


def _unhoused(scene: Scene) -> tuple[str, str] | None:
    """Of replicas that lost their pod and can't get another one where it was: the scheduler looks for another node."""
    shut = closed_places(scene)
    first = min(shut, default=None)
    if first is None:
        return None
    others = f" (and {len(shut) - 1} more)" if len(shut) > 1 else ""
    return NODE_AWAY, f"{first}{others} needs another place: {shut[first]}"


def _unbound(scene: Scene) -> tuple[str, str] | None:
    """Of pods that kube-scheduler is to bind to the nodes of their places."""
    if not scene.needs_admission:
        return None
    for member in scene.members.values():
        words = unschedulable(member.pod) if member.fate is Fate.GOES_ON else None
        if words is not None:
            return UNSCHEDULABLE, f"pod {member.pod.metadata.name} can't be bound: {words}"
    return None


def _not_taken(scene: Scene, status: JobStatus) -> tuple[str, str] | None:
    """Of pods that the node of their place has sent back, until one is taken: somebody else was there first."""
    admission = status.admission
    if admission is None or admission.admitted is None or not scene.needs_admission:
        return None
    for replica, record in status.restarts.items():
        node = admission.nodes.get(replica, NOWHERE)
        if not is_refused(record, node, admission):
            continue
        member = scene.members.get(replica)
        if member is None or member.fate is not Fate.GOES_ON or not member.pod.status.container_statuses:
            return NODE_FULL, f"node {node} does not take {replica}: {record.reason}"
    return None


def unschedulable(pod: Pod) -> str | None:
    """kube-scheduler's words, when it found no way to bind the pod."""
    scheduled = pod.condition("PodScheduled")
    if pod.spec.node_name or scheduled is None or scheduled.status != "False" or scheduled.reason != UNSCHEDULABLE:
        return None
    return scheduled.message
