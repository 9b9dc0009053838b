"""The view of one job that all rules share: decoded spec, recorded status, pods by replica."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import TypeVar, cast

from tarragon.frameworks.owned_objects import OwnedObject
from tarragon.frameworks.plugin import Dialect, Framework, GangSize, JobObservation
from tarragon.job.annotations import is_elastic_by_restart, resizes_by_restart, retryable_exit_codes
from tarragon.job.model import Replica, SuccessPolicy, TrainingJob
from tarragon.job.replica_state import ReplicaAction, ReplicaState, replica_state
from tarragon.job.status import JobStatus
from tarragon.job.status_encoding import recorded_status
from tarragon.kube.core import Node, Pod, Service
from tarragon.kube.event import ObjectReference
from tarragon.kube.meta import Key, OwnerIdentity
from tarragon.plan.input.decode_and_validate import DecodedJob
from tarragon.plan.objects.desired import JobBlueprint, is_placed_by
from tarragon.plan.objects.gang_round import is_outdated
from tarragon.plan.objects.podgroup_kinds import PodGroup
from tarragon.plan.view.actions import ObservedJob
from tarragon.plan.view.stalls import Stall, find_node_stall, find_stall

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A valid job with its recorded status and its observed objects."""

    framework: Framework
    dialect: Dialect
    job: TrainingJob
    decoded: DecodedJob
    observed: ObservedJob
    now: dt.datetime
    recorded_status: JobStatus
    needs_admission: bool
    """False if another scheduler places the job: then it starts immediately, at the size that its spec requests."""
    size: GangSize
    desired_replicas: Sequence[Replica]
    """The desired replicas. Indexes of an elastic job's workers may have gaps after a shrink."""
    members: Mapping[Replica, ReplicaState]
    """The pod of each desired replica, if there is one of the current gang round."""
    stalls: Mapping[Replica, Stall]
    """What keeps pods of `members` from running, including stalls that are too young to be reported."""
    next_review_at: dt.datetime | None
    """When the framework wants to review the states of `members` again."""
    surplus_pods: Sequence[Pod]
    """Pods of the job that belong to no desired replica or to an earlier gang round."""
    owned_objects: Sequence[OwnedObject]
    """What the job should have beside its pods and Services. Large jobs have large ones: they are computed once."""
    results: dict[object, object] = field(default_factory=dict, repr=False, compare=False)
    """What functions that are `once_per_view` have returned."""

    @property
    def may_run(self) -> bool:
        """Whether the job is admitted or needs no admission."""
        return self.recorded_status.is_admitted or not self.needs_admission

    @property
    def is_spec_invalid(self) -> bool:
        """Whether the spec is invalid and the job keeps its last valid one, without pod templates."""
        return bool(self.decoded.problems)

    @property
    def framework_view(self) -> JobObservation:
        return JobObservation(
            job=self.job,
            size=self.size,
            replicas=self.desired_replicas,
            replica_states=self.members,
            status=self.recorded_status,
            cluster_domain=self.observed.settings.cluster_domain,
        )

    @property
    def own_pods(self) -> Sequence[Pod]:
        return [*(each.pod for each in self.members.values()), *self.surplus_pods]

    @property
    def own_services(self) -> Sequence[Service]:
        """The job's services without that of its TensorBoard."""
        tensorboard_name = self.dialect.names.tensorboard(self.job)
        owner = self.job.owner_identity
        owned = (service for service in self.observed.services if is_controlled_by(service, owner))
        return [service for service in owned if service.metadata.name != tensorboard_name]

    def has_other_owner(self, name: str, objects: Mapping[Key, Pod] | Mapping[Key, Service]) -> bool:
        """Whether an object of another owner has this name in the job's namespace."""
        found = objects.get(Key(self.job.key.namespace, name))
        return found is not None and not is_controlled_by(found, self.job.owner_identity)

    @property
    def blueprint(self) -> JobBlueprint:
        return JobBlueprint(
            framework=self.framework,
            dialect=self.dialect,
            job=self.job,
            size=self.size,
            settings=self.observed.settings,
            find_gpus=self.observed.find_gpus,
            storage=self.observed.storage,
            has_gated_pods=self._has_gated_pods,
            nodes=self.assigned_nodes,
        )

    @property
    def _has_gated_pods(self) -> bool:
        return self.observed.was_gated or any(pod.spec.scheduling_gates for pod in self.own_pods)

    @property
    def assigned_nodes(self) -> Mapping[Replica, str]:
        """The assigned place of each replica; empty if another scheduler places the job."""
        admission = self.recorded_status.admission
        return admission.nodes if admission is not None and self.needs_admission else {}

    @property
    def object_reference(self) -> ObjectReference:
        return ObjectReference(
            api_version=self.framework.resource.api_version, kind=self.job.kind, key=self.job.key, uid=self.job.uid
        )


def once_per_view(function: Callable[[JobView], T]) -> Callable[[JobView], T]:
    """Let a function of a view compute its result once for each view. All callers share the result."""

    @wraps(function)
    def remembered(view: JobView) -> T:
        if function not in view.results:
            view.results[function] = function(view)
        return cast("T", view.results[function])

    return remembered


def build_job_view(
    framework: Framework, observed: ObservedJob, decoded: DecodedJob, now: dt.datetime
) -> JobView | None:
    """Build the view of a job; None if the job is not valid."""
    if decoded.job is None or decoded.dialect is None:
        return None
    job = decoded.job
    before = recorded_status(observed.object)
    needs_admission = is_placed_by(job, observed.settings.scheduler_name)
    size = desired_size(job, before, needs_admission=needs_admission)
    replicas = _replicas(job, before, size) if needs_admission else tuple(job.replicas_of_size(size))
    tensorboard_name = decoded.dialect.names.tensorboard(job)
    owner = job.owner_identity
    own_pods = [pod for pod in observed.pods if is_controlled_by(pod, owner) and pod.metadata.name != tensorboard_name]
    pod_of_replica = _newest_pods(job, decoded.dialect, frozenset(replicas), own_pods)
    codes = replace(decoded.dialect.exit_codes, user_retryable=retryable_exit_codes(job))
    members = {
        replica: found
        for replica, pod in pod_of_replica.items()
        for found in [replica_state(pod, framework.main_container, job.restart_policy_of(replica), codes)]
        if found.action is ReplicaAction.COMPLETE
        or replica in before.succeeded_replicas
        or not is_outdated(pod, before)
    }
    uids = {found.pod.metadata.uid for found in members.values()}
    seen = JobObservation(
        job=job,
        size=size,
        replicas=replicas,
        replica_states=members,
        status=before,
        cluster_domain=observed.settings.cluster_domain,
    )
    review = framework.review_states(seen, now)
    return JobView(
        framework=framework,
        dialect=decoded.dialect,
        job=job,
        decoded=decoded,
        observed=observed,
        now=now,
        recorded_status=before,
        needs_admission=needs_admission,
        size=size,
        desired_replicas=replicas,
        members=review.states,
        surplus_pods=[pod for pod in own_pods if pod.metadata.uid not in uids],
        owned_objects=tuple(framework.owned_objects(replace(seen, replica_states=review.states))),
        stalls={
            replica: found
            for replica, each in members.items()
            for found in [_stall(each.pod, framework.main_container, observed)]
            if found is not None
        },
        next_review_at=review.next_at,
    )


def _stall(pod: Pod, main: str, observed: ObservedJob) -> Stall | None:
    """Return why the pod does not run. A lost node hides no obstacle: the start timeout would begin again."""
    stall = find_stall(pod, main)
    if stall is not None and stall.prevents_start:
        return stall
    return find_node_stall(pod, _node_of(pod, observed)) or stall


def _node_of(pod: Pod, observed: ObservedJob) -> Node | None:
    """Return the pod's node; None if it is not known."""
    return None if observed.nodes is None else observed.nodes.get(Key("", pod.spec.node_name))


def desired_size(job: TrainingJob, status: JobStatus, *, needs_admission: bool) -> GangSize:
    """Return the size that the job should have: as admitted, else as requested.

    Where another scheduler places the job, a gang that runs grows only if `may_grow`.
    """
    if needs_admission:
        admitted = status.admission is not None and status.is_admitted
        return status.admission.size if status.admission is not None and admitted else job.requested_size()
    if status.gang_round is None or not status.gang_round.size or may_grow(job, status):
        return job.requested_size()
    return {kind: min(count, status.gang_round.size.get(kind, 0)) for kind, count in job.requested_size().items()}


def may_grow(job: TrainingJob, status: JobStatus) -> bool:
    """Whether a running job may get more replicas.

    It may not once a replica has finished: the job is near its end, and the freed capacity is for other jobs. The
    exception is an elastic job that needs all workers to succeed: the work of a removed worker still has to be done.
    A job that resizes by restart may not grow before the size of its running gang is on record.
    """
    waits_for_all = job.success_policy is SuccessPolicy.ALL_WORKERS and not job.has_chief
    if status.succeeded_replicas and not (
        waits_for_all and job.elastic_policy is not None and not is_elastic_by_restart(job)
    ):
        return False
    return job.elastic_policy is not None or (
        resizes_by_restart(job) and status.gang_round is not None and bool(status.gang_round.size)
    )


def is_controlled_by(owned: Pod | Service | PodGroup, owner: OwnerIdentity) -> bool:
    """Whether the job of this identity (`owner_identity`) controls the object."""
    return owned.metadata.controller_identity == owner


def _replicas(job: TrainingJob, status: JobStatus, size: GangSize) -> Sequence[Replica]:
    """Return the admitted replicas with their recorded indexes; without a matching record, indexes start at 0."""
    admission = status.admission
    placed = admission.nodes.keys() if admission is not None and admission.admitted_at is not None else ()
    if Counter(replica.type for replica in placed) != Counter(size):
        return tuple(job.replicas_of_size(size))
    order = {group.type: position for position, group in enumerate(job.replica_specs)}
    known_types = (replica for replica in placed if replica.type in order)
    return sorted(known_types, key=lambda replica: (order[replica.type], replica.index))


def _newest_pods(
    job: TrainingJob, dialect: Dialect, replicas: Container[Replica], own_pods: Iterable[Pod]
) -> dict[Replica, Pod]:
    """Return the newest pod of each desired replica. Pods are matched by name: labels can be edited."""
    pod_of_replica: dict[Replica, Pod] = {}
    for pod in sorted(own_pods, key=_creation_order):
        replica = dialect.names.replica_of(job, pod.metadata.name)
        if replica is not None and replica in replicas:
            pod_of_replica[replica] = pod
    return pod_of_replica


def _creation_order(pod: Pod) -> tuple[float, str]:
    created = pod.metadata.creation_timestamp
    return (created.timestamp() if created is not None else 0.0, pod.metadata.uid)
