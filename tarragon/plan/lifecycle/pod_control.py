"""Which pods and services to make and which to remove while a job is to run."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from tarragon.frameworks.plugin import Framework
from tarragon.job.annotations import restarts_together
from tarragon.job.member import Fate, Member
from tarragon.job.model import Replica, ReplicaType
from tarragon.job.status import NOWHERE, JobStatus
from tarragon.kube.core import CONFIG_MAPS, PODS, SERVICES, Service
from tarragon.kube.meta import Key
from tarragon.plan.lifecycle.displacement import Doors, closed
from tarragon.plan.lifecycle.gang_restart import outdated
from tarragon.plan.lifecycle.graceful_eviction import Doomed
from tarragon.plan.lifecycle.restart_records import is_recorded, may_start_at
from tarragon.plan.objects.desired import (
    Blueprint,
    config_maps,
    in_start_order,
    pods,
    scripts_of_logs,
    service_names,
    services,
)
from tarragon.plan.objects.generation_label import current
from tarragon.plan.objects.placement import node_of
from tarragon.plan.view.actions import Create, Delete, Observed
from tarragon.plan.view.job_view import Scene

MOST_CREATES = 500
"""In one step. The next look at the job makes the rest; meanwhile a failure of the first ones is noticed."""

PLAIN_LOGS = "the job runs without it, and logs plain text"


def creates(scene: Scene, status: JobStatus) -> list[Create]:
    """Services before pods: all names that the replicas will ever ask for are there when the first one starts."""
    if not scene.may_run or scene.is_refused or _is_held_back(scene) or any(outdated(scene, status)):
        return []
    plan = replace(scene.blueprint, round=current(status))
    unserved = list(_unserved(scene))
    if unserved:
        taken = {service.metadata.name for service in scene.own_services} | set(_taken_services(scene))
        wanted = islice((replica for name, replica in unserved if name not in taken), MOST_CREATES)
        return [Create(resource=SERVICES, body=body) for body in services(plan, wanted)]
    if not scene.members and (any(_taken_pods(scene, status)) or closed_places(scene)):
        return []  # A gang that can't be whole is not begun.
    due = list(islice(_due(scene, status), MOST_CREATES))
    if not due:
        return []
    return list(_mounted(plan)) + [
        Create(resource=PODS, body=body, alone=_is_made_alone(scene, replica))
        for replica, body in zip(due, pods(plan, due), strict=False)
    ]


def _mounted(plan: Blueprint) -> Iterator[Create]:
    """Whether they are there is not looked up: making one that exists is no fault, and pods are seldom made."""
    for body in config_maps(plan):
        yield Create(resource=CONFIG_MAPS, body=body, is_surely_ours=True, alone=True)
    for body in scripts_of_logs(plan):
        yield Create(
            resource=CONFIG_MAPS, body=body, is_surely_ours=True, alone=True, may_be_refused=True, without=PLAIN_LOGS
        )


def doomed(scene: Scene, status: JobStatus) -> list[Doomed]:
    """Pods that are to go, by what this status has on record; what it does not know yet, the next look will see."""
    old = list(outdated(scene, status))
    uids = {pod.metadata.uid for pod in old}
    is_resized = status.gang is not None and status.gang.saves
    found = [Doomed(pod=pod, why="its gang is started again, whole", may_save=is_resized) for pod in old]
    found += [
        Doomed(pod=pod, why="no replica of the admitted size has this name", may_save=True)
        for pod in scene.surplus
        if pod.metadata.uid not in uids
    ]
    found += [
        going
        for replica, member in scene.members.items()
        if member.pod.metadata.uid not in uids
        for going in [_replaced(scene, status, replica, member) or _removed(scene, replica, member)]
        if going is not None
    ]
    return found


def deletes_of_services(scene: Scene) -> list[Delete]:
    return [delete_service(service, "no replica has this name any more") for service in _unused(scene)]


def wake_for_start(scene: Scene, status: JobStatus) -> dt.datetime | None:
    """When the next replica that ended too often may be started again."""
    if not scene.may_run or not status.restarts:
        return None
    due = (_start_of(scene, status, replica) for replica in _startable(scene, status))
    return min((at for at in due if at is not None and at > scene.now), default=None)


def taken_names(scene: Scene, status: JobStatus) -> Sequence[str]:
    """Names that the job needs and somebody else has."""
    if not scene.may_run:
        return []
    return sorted({*_taken_services(scene), *_taken_pods(scene, status)})


def closed_places(scene: Scene) -> Mapping[Replica, str]:
    """Why the node of its place takes no pod of a replica that has none; the scheduler looks for another one."""
    nodes = scene.observed.nodes
    if nodes is None or not scene.may_run or scene.is_refused:
        return {}
    there = scene.members.keys() | scene.before.finished
    missing = {replica: node for replica, node in scene.places.items() if replica not in there}
    return dict(closed(Doors(scene.job, nodes, scene.observed.is_cleared), missing)) if missing else {}


def is_awaiting_a_pod(scene: Scene, status: JobStatus) -> bool:
    """Whether a pod that should be there by now is not, or a service that the pods wait for."""
    return any(_unserved(scene)) or any(_due(scene, status))


def delete_service(service: Service, why: str) -> Delete:
    return Delete(
        resource=SERVICES,
        key=service.metadata.key,
        uid=service.metadata.uid,
        resource_version=service.metadata.resource_version,
        reason=why,
    )


def delete_job(framework: Framework, observed: Observed) -> Delete:
    metadata = observed.object.metadata
    return Delete(
        resource=framework.resource,
        key=metadata.key,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        reason="its ttlSecondsAfterFinished is over",
    )


def _replaced(scene: Scene, status: JobStatus, replica: Replica, member: Member) -> Doomed | None:
    if member.fate is not Fate.REPLACED or scene.is_refused:
        return None
    if member.was_told_to_go:
        return Doomed(pod=member.pod, why="it has left, as it was told to")
    is_counted = is_recorded(status.restarts.get(replica), member)
    return Doomed(pod=member.pod, why="it has ended, and is replaced by a new one") if is_counted else None


def _removed(scene: Scene, replica: Replica, member: Member) -> Doomed | None:
    """If this replica's pod is to go although it has not ended."""
    if member.fate is not Fate.GOES_ON:
        return None
    if not scene.may_run:
        return Doomed(pod=member.pod, why="the job has lost its places", may_save=True)
    place, here = scene.places.get(replica), node_of(member.pod.spec)
    is_elsewhere = place and here and place != here
    return Doomed(pod=member.pod, why=f"its place is on node {place} now") if is_elsewhere else None


def _unserved(scene: Scene) -> Iterator[tuple[str, Replica]]:
    """Replicas whose service is missing, a stranger's, or on its way out: the pods wait for them."""
    living = {service.metadata.name for service in scene.own_services if not service.metadata.is_ending}
    return ((name, replica) for name, replica in service_names(scene.blueprint) if name not in living)


def _unused(scene: Scene) -> Iterator[Service]:
    """Services of replicas that a smaller wish has done away with."""
    if not scene.may_run or not scene.own_services:
        return
    used = {name for name, _ in service_names(scene.blueprint)}
    for service in scene.own_services:
        if service.metadata.name not in used and not service.metadata.is_ending:
            yield service


def _missing(scene: Scene, status: JobStatus) -> Iterator[Replica]:
    places = scene.places
    shut = closed_places(scene)
    for replica in in_start_order(scene.framework, scene.job, scene.replicas):
        has_place = places.get(replica) != NOWHERE and replica not in shut
        if has_place and replica not in scene.members and replica not in status.finished:
            yield replica


def _startable(scene: Scene, status: JobStatus) -> Iterator[Replica]:
    """A name is not used again while a pod has it, whosever that is."""
    there, namespace = scene.observed.pods_there, scene.job.key.namespace
    taken = {pod.metadata.name for pod in scene.own_pods}
    for replica in _missing(scene, status):
        name = _pod_name(scene, replica)
        if name not in taken and Key(namespace, name) not in there:
            yield replica


def _due(scene: Scene, status: JobStatus) -> Iterator[Replica]:
    return (replica for replica in _startable(scene, status) if _is_due(scene, status, replica))


def _taken_services(scene: Scene) -> Iterator[str]:
    return (name for name, _ in _unserved(scene) if scene.is_anothers(name, scene.observed.services_there))


def _taken_pods(scene: Scene, status: JobStatus) -> Iterator[str]:
    names = (_pod_name(scene, replica) for replica in _missing(scene, status))
    return (name for name in names if scene.is_anothers(name, scene.observed.pods_there))


def _is_made_alone(scene: Scene, replica: Replica) -> bool:
    """So that a quota that lets only some be made leaves out the last ones, and refuses one, not many."""
    admission = scene.before.admission
    was_refused = scene.before.obstacle is not None or (admission is not None and admission.retry is not None)
    elastic = scene.job.elastic
    is_extra = elastic is not None and replica.type is ReplicaType.WORKER and replica.index >= elastic.minimum
    return was_refused or is_extra


def _is_held_back(scene: Scene) -> bool:
    refusal = scene.observed.refusal
    return refusal is not None and scene.now < refusal.again


def _is_due(scene: Scene, status: JobStatus, replica: Replica) -> bool:
    due = _start_of(scene, status, replica)
    return due is None or due <= scene.now


def _start_of(scene: Scene, status: JobStatus, replica: Replica) -> dt.datetime | None:
    """Of a gang that restarts as one, all wait for whoever has to wait longest."""
    if not restarts_together(scene.job):
        return may_start_at(status.restarts.get(replica))
    waits = (may_start_at(record) for one, record in status.restarts.items() if one not in status.finished)
    return max((at for at in waits if at is not None), default=None)


def _pod_name(scene: Scene, replica: Replica) -> str:
    return scene.dialect.names.pod(scene.job, replica)
