"""Decides which pods and services to create and delete while a job should run."""

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
"""Creates per step. The next reconcile creates the rest, unless the first ones have failed by then."""

PLAIN_LOGS = "the job runs without it and logs plain text"


def creates(view: Scene, status: JobStatus) -> list[Create]:
    """Return what to create: all services first, so that every name resolves when the first replica starts."""
    if not view.may_run or view.is_refused or _is_backing_off(view) or any(outdated(view, status)):
        return []
    plan = replace(view.blueprint, round=current(status))
    missing_services = list(_missing_services(view))
    if missing_services:
        taken = {service.metadata.name for service in view.own_services} | set(_conflicting_services(view))
        wanted = islice((replica for name, replica in missing_services if name not in taken), MOST_CREATES)
        return [Create(resource=SERVICES, body=body) for body in services(plan, wanted)]
    if not view.members and (any(_conflicting_pods(view, status)) or closed_places(view)):
        return []  # A gang that can't be complete is not started.
    due = list(islice(_due_replicas(view, status), MOST_CREATES))
    if not due:
        return []
    return list(_config_map_creates(plan)) + [
        Create(resource=PODS, body=body, alone=_is_created_alone(view, replica))
        for replica, body in zip(due, pods(plan, due), strict=False)
    ]


def _config_map_creates(plan: Blueprint) -> Iterator[Create]:
    """Yield creates for all ConfigMaps. Existing ones are not looked up: creating them again is rare and no error."""
    for body in config_maps(plan):
        yield Create(resource=CONFIG_MAPS, body=body, is_surely_ours=True, alone=True)
    for body in scripts_of_logs(plan):
        yield Create(
            resource=CONFIG_MAPS, body=body, is_surely_ours=True, alone=True, may_be_refused=True, without=PLAIN_LOGS
        )


def doomed(view: Scene, status: JobStatus) -> list[Doomed]:
    """Return the pods to delete according to `status`. What is not on record there is left to the next reconcile."""
    old_pods = list(outdated(view, status))
    uids = {pod.metadata.uid for pod in old_pods}
    is_resized = status.gang is not None and status.gang.saves
    evictions = [Doomed(pod=pod, why="all replicas of its gang restart", may_save=is_resized) for pod in old_pods]
    evictions += [
        Doomed(pod=pod, why="no replica of the admitted size has this name", may_save=True)
        for pod in view.surplus
        if pod.metadata.uid not in uids
    ]
    evictions += [
        eviction
        for replica, member in view.members.items()
        if member.pod.metadata.uid not in uids
        for eviction in [_replacement(view, status, replica, member) or _removal(view, replica, member)]
        if eviction is not None
    ]
    return evictions


def deletes_of_services(view: Scene) -> list[Delete]:
    return [delete_service(service, "no replica has this name any more") for service in _unused_services(view)]


def wake_for_start(view: Scene, status: JobStatus) -> dt.datetime | None:
    """Return when the next replica in restart backoff may start; None if none is waiting."""
    if not view.may_run or not status.restarts:
        return None
    start_times = (_start_time(view, status, replica) for replica in _startable(view, status))
    return min((at for at in start_times if at is not None and at > view.now), default=None)


def taken_names(view: Scene, status: JobStatus) -> Sequence[str]:
    """Return the names that the job needs and that objects of other owners have."""
    if not view.may_run:
        return []
    return sorted({*_conflicting_services(view), *_conflicting_pods(view, status)})


def closed_places(view: Scene) -> Mapping[Replica, str]:
    """Return replicas without a pod whose node rejects new pods, with the reason; the scheduler moves them."""
    nodes = view.observed.nodes
    if nodes is None or not view.may_run or view.is_refused:
        return {}
    accounted_for = view.members.keys() | view.before.finished
    missing = {replica: node for replica, node in view.places.items() if replica not in accounted_for}
    return dict(closed(Doors(view.job, nodes, view.observed.is_cleared), missing)) if missing else {}


def is_awaiting_a_pod(view: Scene, status: JobStatus) -> bool:
    """Whether a pod that should exist by now, or a service that it needs, is missing."""
    return any(_missing_services(view)) or any(_due_replicas(view, status))


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
        reason="its ttlSecondsAfterFinished has expired",
    )


def _replacement(view: Scene, status: JobStatus, replica: Replica, member: Member) -> Doomed | None:
    if member.fate is not Fate.REPLACED or view.is_refused:
        return None
    if member.was_told_to_go:
        return Doomed(pod=member.pod, why="it was told to end and has ended")
    is_counted = is_recorded(status.restarts.get(replica), member)
    return Doomed(pod=member.pod, why="it has ended and is replaced") if is_counted else None


def _removal(view: Scene, replica: Replica, member: Member) -> Doomed | None:
    """Return the eviction of a pod that still runs, if the job lost its admission or the replica's node changed."""
    if member.fate is not Fate.GOES_ON:
        return None
    if not view.may_run:
        return Doomed(pod=member.pod, why="the job is no longer admitted", may_save=True)
    assigned, actual = view.places.get(replica), node_of(member.pod.spec)
    has_moved = assigned and actual and assigned != actual
    return Doomed(pod=member.pod, why=f"its replica is now assigned to node {assigned}") if has_moved else None


def _missing_services(view: Scene) -> Iterator[tuple[str, Replica]]:
    """Yield replicas without a live service of the job's own. Pods are created only when there are none."""
    live_services = {service.metadata.name for service in view.own_services if not service.metadata.is_ending}
    return ((name, replica) for name, replica in service_names(view.blueprint) if name not in live_services)


def _unused_services(view: Scene) -> Iterator[Service]:
    """Yield services of replicas that no longer exist because the job was scaled down."""
    if not view.may_run or not view.own_services:
        return
    used_names = {name for name, _ in service_names(view.blueprint)}
    for service in view.own_services:
        if service.metadata.name not in used_names and not service.metadata.is_ending:
            yield service


def _missing_replicas(view: Scene, status: JobStatus) -> Iterator[Replica]:
    places = view.places
    rejected = closed_places(view)
    for replica in in_start_order(view.framework, view.job, view.replicas):
        has_node = places.get(replica) != NOWHERE and replica not in rejected
        if has_node and replica not in view.members and replica not in status.finished:
            yield replica


def _startable(view: Scene, status: JobStatus) -> Iterator[Replica]:
    """Yield missing replicas whose pod name is free: not used by any pod, of whatever owner."""
    existing_pods, namespace = view.observed.pods_there, view.job.key.namespace
    taken = {pod.metadata.name for pod in view.own_pods}
    for replica in _missing_replicas(view, status):
        name = _pod_name(view, replica)
        if name not in taken and Key(namespace, name) not in existing_pods:
            yield replica


def _due_replicas(view: Scene, status: JobStatus) -> Iterator[Replica]:
    return (replica for replica in _startable(view, status) if _is_due(view, status, replica))


def _conflicting_services(view: Scene) -> Iterator[str]:
    return (name for name, _ in _missing_services(view) if view.is_anothers(name, view.observed.services_there))


def _conflicting_pods(view: Scene, status: JobStatus) -> Iterator[str]:
    names = (_pod_name(view, replica) for replica in _missing_replicas(view, status))
    return (name for name in names if view.is_anothers(name, view.observed.pods_there))


def _is_created_alone(view: Scene, replica: Replica) -> bool:
    """Whether the pod is created after all before it, one at a time.

    If a quota allows only some of the pods, it then rejects one request instead of many, and the last replicas are the
    ones that are missing.
    """
    admission = view.before.admission
    was_refused = view.before.obstacle is not None or (admission is not None and admission.retry is not None)
    elastic = view.job.elastic
    is_extra = elastic is not None and replica.type is ReplicaType.WORKER and replica.index >= elastic.minimum
    return was_refused or is_extra


def _is_backing_off(view: Scene) -> bool:
    refusal = view.observed.refusal
    return refusal is not None and view.now < refusal.again


def _is_due(view: Scene, status: JobStatus, replica: Replica) -> bool:
    start = _start_time(view, status, replica)
    return start is None or start <= view.now


def _start_time(view: Scene, status: JobStatus, replica: Replica) -> dt.datetime | None:
    """Return when the replica's backoff ends. In a gang that restarts together, the longest backoff holds for all."""
    if not restarts_together(view.job):
        return may_start_at(status.restarts.get(replica))
    backoff_ends = (may_start_at(record) for other, record in status.restarts.items() if other not in status.finished)
    return max((at for at in backoff_ends if at is not None), default=None)


def _pod_name(view: Scene, replica: Replica) -> str:
    return view.dialect.names.pod(view.job, replica)
