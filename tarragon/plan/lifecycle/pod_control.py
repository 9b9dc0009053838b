"""Decides which pods and services to create and delete while a job should run."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from tarragon.frameworks.plugin import Framework, JobService
from tarragon.job.annotations import restarts_as_gang
from tarragon.job.model import Replica
from tarragon.job.places import describe_place, node_of
from tarragon.job.replica_state import ReplicaAction, ReplicaState
from tarragon.job.status import UNASSIGNED, JobStatus
from tarragon.kube.core import PODS, SERVICES, Service
from tarragon.kube.meta import Key
from tarragon.kube.scheduling.gpu_shares import GpuShare
from tarragon.plan.lifecycle.displacement import NodeFilter, replicas_on_rejecting_nodes
from tarragon.plan.lifecycle.gang_restart import outdated_pods
from tarragon.plan.lifecycle.graceful_eviction import PodEviction
from tarragon.plan.lifecycle.owned_object_control import (
    creates_before_pods,
    creates_of_unseen,
    creates_of_watched,
    unreadable_kinds,
)
from tarragon.plan.lifecycle.restart_records import backoff_ends_at, is_end_recorded
from tarragon.plan.lifecycle.start_order import GangReadiness, UnmetPrerequisite, unmet_prerequisites
from tarragon.plan.objects.desired import (
    JobBlueprint,
    build_pods,
    build_services,
    in_start_order,
    services,
)
from tarragon.plan.objects.gang_round import current_round
from tarragon.plan.objects.placement import assigned_place
from tarragon.plan.objects.vgpus import GpuWait, gpu_demand
from tarragon.plan.view.actions import Create, Delete, ObservedJob
from tarragon.plan.view.job_view import JobView, once_per_view

MAX_CREATES_PER_RECONCILE = 500
"""Creates per step. The next reconcile creates the rest, unless the first ones have failed by then."""


def objects_to_create(view: JobView, status: JobStatus) -> list[Create]:
    """Return what to create: services before pods, so that every name resolves when the first replica starts."""
    if not view.may_run or view.is_spec_invalid or _is_backing_off(view) or any(outdated_pods(view, status)):
        return []
    if unreadable_kinds(view):
        return []
    plan = replace(view.blueprint, gang_round=current_round(status))
    missing_services = list(_missing_services(view))
    missing_objects = list(creates_of_watched(view))
    if missing_objects:
        return missing_objects
    taken = {service.metadata.name for service in view.own_services} | set(_conflicting_services(view))
    wanted = [each for name, each in missing_services if name not in taken]
    names = [Create(resource=SERVICES, body=body) for body in build_services(plan, wanted[:MAX_CREATES_PER_RECONCILE])]
    if len(names) < len(missing_services):
        return names  # Names that are taken must be free first, and so many services are a step of their own.
    return names + _pods_to_create(view, status, plan, MAX_CREATES_PER_RECONCILE - len(names))


def _pods_to_create(view: JobView, status: JobStatus, plan: JobBlueprint, most: int) -> list[Create]:
    if not view.members and (any(_conflicting_pods(view, status)) or rejecting_nodes(view)):
        return []  # A gang that can't be complete is not started.
    due = list(islice(_due_replicas(view, status), most))
    if not due:
        return list(creates_of_unseen(view))
    return list(creates_before_pods(view, plan)) + [
        Create(resource=PODS, body=body, is_sequential=_is_created_alone(view, replica))
        for replica, body in zip(due, build_pods(plan, due), strict=False)
    ]


def pods_to_evict(view: JobView, status: JobStatus) -> list[PodEviction]:
    """Return the pods to delete according to `status`. What is not on record there is left to the next reconcile."""
    old_pods = list(outdated_pods(view, status))
    uids = {pod.metadata.uid for pod in old_pods}
    is_resized = status.gang_round is not None and status.gang_round.may_checkpoint
    evictions = [
        PodEviction(pod=pod, reason="all replicas of its gang restart", has_grace=is_resized) for pod in old_pods
    ]
    evictions += [
        PodEviction(pod=pod, reason="no replica of the admitted size has this name", has_grace=True)
        for pod in view.surplus_pods
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


def services_to_delete(view: JobView) -> list[Delete]:
    return [delete_service(service, "no replica has this name any more") for service in _unused_services(view)]


def next_start_at(view: JobView, status: JobStatus) -> dt.datetime | None:
    """Return when the next replica in restart backoff may start; None if none is waiting."""
    if not view.may_run or not status.restarts:
        return None
    start_times = (_start_time(view, status, replica) for replica in _startable(view, status))
    return min((at for at in start_times if at is not None and at > view.now), default=None)


def conflicting_names(view: JobView, status: JobStatus) -> Sequence[str]:
    """Return the names that the job needs and that objects of other owners have."""
    if not view.may_run:
        return []
    return sorted({*_conflicting_services(view), *_conflicting_pods(view, status)})


@once_per_view
def rejecting_nodes(view: JobView) -> Mapping[Replica, str]:
    """Return replicas without a pod whose node rejects new pods, with the reason; the scheduler moves them."""
    nodes = view.observed.nodes
    if nodes is None or not view.may_run or view.is_spec_invalid:
        return {}
    accounted_for = view.members.keys() | view.recorded_status.succeeded_replicas
    missing = {replica: node for replica, node in view.assigned_nodes.items() if replica not in accounted_for}
    if not missing:
        return {}

    def gpu_shortage(replica: Replica, place: str, share: GpuShare) -> str:
        return view.observed.gpu_shortage(Key(view.job.key.namespace, _pod_name(view, replica)), place, share)

    node_filter = NodeFilter(view.job, nodes, view.observed.is_being_preempted, gpu_shortage)
    return dict(replicas_on_rejecting_nodes(node_filter, missing))


def waits_for_gpus(view: JobView, status: JobStatus) -> Iterator[tuple[Replica, GpuWait]]:
    """Yield the missing replicas whose GPUs are not known yet."""
    for replica in _missing_replicas(view, status):
        wait = _wait_for_gpu(view, replica)
        if wait is not None:
            yield replica, wait


def prerequisites(view: JobView, status: JobStatus) -> Iterator[UnmetPrerequisite]:
    """Yield what keeps missing replicas from being created, although the job may run."""

    def is_ready(replica: Replica) -> bool:
        member = view.members.get(replica)
        return member is not None and member.is_ready

    gang = GangReadiness(job=view.job, status=status, replicas=view.desired_replicas, is_ready=is_ready)
    for unmet in unmet_prerequisites(gang):
        replicas = (replica for replica in view.desired_replicas if replica.type == unmet.waiting)
        if any(replica not in view.members and replica not in status.succeeded_replicas for replica in replicas):
            yield unmet


def has_missing_objects(view: JobView, status: JobStatus) -> bool:
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


def delete_job(framework: Framework, observed: ObservedJob) -> Delete:
    metadata = observed.object.metadata
    return Delete(
        resource=framework.resource,
        key=metadata.key,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        reason="its ttlSecondsAfterFinished has expired",
    )


def _replacement(view: JobView, status: JobStatus, replica: Replica, member: ReplicaState) -> PodEviction | None:
    if member.action is not ReplicaAction.REPLACE or view.is_spec_invalid:
        return None
    if member.is_leaving:
        return PodEviction(pod=member.pod, reason="it was told to end and has ended")
    is_counted = is_end_recorded(status.restarts.get(replica), member)
    return PodEviction(pod=member.pod, reason="it has ended and is replaced") if is_counted else None


def _removal(view: JobView, replica: Replica, member: ReplicaState) -> PodEviction | None:
    """Return the eviction of a pod that still runs, if the job lost its admission or the replica's node changed."""
    if member.action is not ReplicaAction.CONTINUE:
        return None
    if not view.may_run:
        return PodEviction(pod=member.pod, reason="the job is no longer admitted", has_grace=True)
    assigned, actual = view.assigned_nodes.get(replica), assigned_place(member.pod)
    if not assigned or not actual or assigned == actual:
        return None
    reason = f"its replica is now assigned to {describe_place(assigned)}"
    return PodEviction(pod=member.pod, reason=reason, has_grace=_is_ready(view, actual))


def _is_ready(view: JobView, place: str) -> bool:
    """Whether programs on the node go on: those on a lost one would never know that they have time to save."""
    found = (view.observed.nodes or {}).get(Key("", node_of(place)))
    return found is not None and found.is_ready


def _missing_services(view: JobView) -> Iterator[tuple[str, Replica | JobService]]:
    """Yield services that should exist and do not, or are being deleted. Pods are created only when there are none."""
    live_services = {service.metadata.name for service in view.own_services if not service.metadata.is_being_deleted}
    return ((name, wanted) for name, wanted in services(view.blueprint) if name not in live_services)


def _unused_services(view: JobView) -> Iterator[Service]:
    """Yield services of replicas that no longer exist because the job was scaled down."""
    if not view.may_run or not view.own_services:
        return
    used_names = {name for name, _ in services(view.blueprint)}
    for service in view.own_services:
        if service.metadata.name not in used_names and not service.metadata.is_being_deleted:
            yield service


def _missing_replicas(view: JobView, status: JobStatus) -> Iterator[Replica]:
    places = view.assigned_nodes
    rejected = rejecting_nodes(view)
    for replica in in_start_order(view.framework, view.job, view.desired_replicas):
        has_node = places.get(replica) != UNASSIGNED and replica not in rejected
        if has_node and replica not in view.members and replica not in status.succeeded_replicas:
            yield replica


def _startable(view: JobView, status: JobStatus) -> Iterator[Replica]:
    """Yield missing replicas that wait for no others, whose GPUs are known, and whose pod name is free: not used by any
    pod, of any owner.
    """
    existing_pods, namespace = view.observed.pods_by_key, view.job.key.namespace
    taken = {pod.metadata.name for pod in view.own_pods}
    waiting = {each.waiting for each in prerequisites(view, status)}
    for replica in _missing_replicas(view, status):
        if replica.type in waiting:
            continue
        name = _pod_name(view, replica)
        is_free = name not in taken and Key(namespace, name) not in existing_pods
        if is_free and _wait_for_gpu(view, replica) is None:
            yield replica


def _wait_for_gpu(view: JobView, replica: Replica) -> GpuWait | None:
    place, group = view.assigned_nodes.get(replica), view.job.replica_spec(replica.type)
    if place is None or group is None:
        return None
    pod = Key(view.job.key.namespace, _pod_name(view, replica))
    demand = gpu_demand(pod, place, group.template.get("spec", {}))
    found = None if demand is None else view.observed.find_gpus(demand)
    return found if isinstance(found, GpuWait) else None


def _due_replicas(view: JobView, status: JobStatus) -> Iterator[Replica]:
    return (replica for replica in _startable(view, status) if _is_due(view, status, replica))


def _conflicting_services(view: JobView) -> Iterator[str]:
    return (name for name, _ in _missing_services(view) if view.has_other_owner(name, view.observed.services_by_key))


def _conflicting_pods(view: JobView, status: JobStatus) -> Iterator[str]:
    names = (_pod_name(view, replica) for replica in _missing_replicas(view, status))
    return (name for name in names if view.has_other_owner(name, view.observed.pods_by_key))


def _is_created_alone(view: JobView, replica: Replica) -> bool:
    """Whether the pod is created after all before it, one at a time.

    If a quota allows only some of the pods, it then rejects one request instead of many, and the last replicas are the
    ones that are missing. Replicas that can't wait for others must not be older than those.
    """
    admission = view.recorded_status.admission
    was_refused = view.recorded_status.obstacle is not None or (admission is not None and admission.backoff is not None)
    elastic = view.job.elastic_policy
    is_extra = elastic is not None and view.job.is_elastic_type(replica.type) and replica.index >= elastic.min_replicas
    group = view.job.replica_spec(replica.type)
    return was_refused or is_extra or (group is not None and group.role.restarts_after is not None)


def _is_backing_off(view: JobView) -> bool:
    refusal = view.observed.rejected_create
    return refusal is not None and view.now < refusal.retry_at


def _is_due(view: JobView, status: JobStatus, replica: Replica) -> bool:
    start = _start_time(view, status, replica)
    return start is None or start <= view.now


def _start_time(view: JobView, status: JobStatus, replica: Replica) -> dt.datetime | None:
    """Return when the replica's backoff ends. In a gang that restarts together, the longest backoff holds for all."""
    if not restarts_as_gang(view.job):
        return backoff_ends_at(status.restarts.get(replica))
    backoff_ends = (
        backoff_ends_at(record) for other, record in status.restarts.items() if other not in status.succeeded_replicas
    )
    return max((at for at in backoff_ends if at is not None), default=None)


def _pod_name(view: JobView, replica: Replica) -> str:
    return view.dialect.names.pod(view.job, replica)
