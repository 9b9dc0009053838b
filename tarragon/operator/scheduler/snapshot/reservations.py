"""Resources reserved for admitted replicas whose pods do not exist yet, and resources of pods that will be deleted.

A pod whose creation was requested counts as existing, and holds its resources even if its replica was moved meanwhile.
Both sums are maintained incrementally.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from tarragon.base.gpu_constraints import is_mark
from tarragon.base.resources import Resources, fits
from tarragon.job.model import Replica, ReplicaType
from tarragon.job.places import node_of, vgpu_of
from tarragon.job.status import Admission
from tarragon.kube.core import Pod
from tarragon.kube.meta import Key
from tarragon.kube.scheduling.gpu_shares import GpuShare, share_of_pod, share_of_template
from tarragon.kube.scheduling.vgpu_requests import request_at_vgpu
from tarragon.operator.informers.candidates import Candidate, JobId, pods_by_replica
from tarragon.operator.informers.informers import Informers
from tarragon.operator.informers.pod_usage import NodeSums, holds_resources, requests_of
from tarragon.operator.scheduler.job_errors import JobErrors
from tarragon.operator.scheduler.snapshot.pod_affinity_index import ExpectedPods, PodAffinityIndex
from tarragon.plan.nodes.left_to_kube_scheduler import is_left_to_kube_scheduler
from tarragon.plan.nodes.replica_requests import group_request, is_right_place, replica_request
from tarragon.plan.objects.placement import bound_place
from tarragon.plan.reconcile.adoption import has_unassigned_replicas

PodsOfReplicas = Collection[tuple[Replica, Pod]]
Amounts = tuple[str, Resources]
"""A node and an amount of resources on it."""


class Reservations:
    """Reserved and releasing resources by node. A job's share is recomputed only if the job or its pods change."""

    def __init__(self, informers: Informers, job_errors: JobErrors, pod_affinity: PodAffinityIndex) -> None:
        self.held = NodeSums()
        """Reserved resources by node, in thousandths."""
        self.releasing = NodeSums()
        """Resources of pods that will be deleted but are not terminating yet, minus those of terminating pods whose
        replica returns to the same node."""
        self._job_errors = job_errors
        self._pod_affinity = pod_affinity
        self._informers = informers
        self._jobs = informers.jobs
        self._held_by_job: dict[JobId, list[Amounts]] = {}
        self._releasing_by_job: dict[JobId, list[Amounts]] = {}
        self._changed: set[JobId] = set()
        informers.pods.add_event_handler(self._pod_changed)
        informers.assumed_pods.subscribe(self._changed.add)

    def job_changed(self, job: JobId) -> None:
        self._changed.add(job)

    def forget(self, job: JobId) -> None:
        """The job was deleted and was not a candidate. Remaining reservations are still released by `recompute`."""
        if (
            job not in self._held_by_job
            and job not in self._releasing_by_job
            and not self._informers.assumed_pods.pods_of(job)
        ):
            self._changed.discard(job)

    @property
    def pending_changes(self) -> int:
        """Number of jobs whose reservations have to be recomputed."""
        return len(self._changed)

    def recompute(self, candidates: Mapping[JobId, Candidate]) -> None:
        """Recompute changed jobs; must be called before the sums are read. Only candidates have reservations.

        If a job fails, its reservations stay as they were and are recomputed in the next cycle.
        """
        for job in list(self._changed):
            with self._job_errors.isolate(job, "compute its reservations"):
                self._recompute(job, candidates.get(job))
                self._changed.discard(job)

    def additional(self, found: Iterable[tuple[Candidate, Admission]]) -> NodeSums:
        """What these admissions will reserve once written, in addition to the current reservations."""
        more = NodeSums()
        for candidate, admission in found:
            assigned = _nodes(candidate)
            nodes = {replica: place for replica, place in admission.nodes.items() if assigned.get(replica) != place}
            pods = self._pods(candidate, self._informers.assumed_pods.pods_of(candidate.id)) if nodes else []
            for node, amounts in _reserved_by(candidate, nodes, pods):
                more.add(node, amounts)
        return more

    def _recompute(self, job: JobId, candidate: Candidate | None) -> None:
        assumed = self._informers.assumed_pods.pods_of(job)
        held = [_amounts(pod) for pod in assumed if holds_resources(pod)]
        releasing = [_amounts(pod) for pod in assumed if holds_resources(pod) and not _belongs_to(candidate, pod)]
        without_pod: dict[Replica, str] = {}
        if candidate is not None:
            pods = self._pods(candidate, assumed)
            held += _reserved_by(candidate, _nodes(candidate), pods)
            releasing += _released_by(candidate, pods)
            missing = _without_pod(candidate, _nodes(candidate), self._pods(candidate, ()))
            without_pod.update({replica: node_of(place) for replica, place in missing})
        self._pod_affinity.expect_pods(
            job, ExpectedPods(candidate=candidate, assignments=without_pod, requested_pods=assumed)
        )
        _update(self._held_by_job, self.held, job, held)
        _update(self._releasing_by_job, self.releasing, job, releasing)

    def _pods(self, candidate: Candidate, assumed: Sequence[Pod]) -> PodsOfReplicas:
        ours = [pod for pod in assumed if _belongs_to(candidate, pod)]
        return list(pods_by_replica(candidate, [*self._informers.pods_of(candidate.object), *ours]))

    def _pod_changed(self, _: Key, old: Pod | None, new: Pod | None) -> None:
        """Mark the pod's job, found by its owner reference: a foreign pod may have a replica's name."""
        for pod in (old, new):
            job = None if pod is None else self._informers.job_of(pod.metadata)
            if job is not None and self._job_exists(job):
                self._changed.add(job)

    def _job_exists(self, job: JobId) -> bool:
        """Whether the job exists; later changes of a missing job arrive through `job_changed`."""
        kind, key = job
        return key in self._jobs[kind].objects


def _update(by_job: dict[JobId, list[Amounts]], sums: NodeSums, job: JobId, new: list[Amounts]) -> None:
    old = by_job.pop(job, [])
    if new:
        by_job[job] = new
    if old == new:
        return
    for node, amounts in old:
        sums.subtract(node, amounts)
    for node, amounts in new:
        sums.add(node, amounts)


def _amounts(pod: Pod) -> Amounts:
    return pod.spec.node_name, requests_of(pod)


def _belongs_to(candidate: Candidate | None, pod: Pod) -> bool:
    """Whether the pod belongs to this job, not to an earlier job of the same name."""
    return candidate is not None and pod.metadata.controller_identity == candidate.object.owner_identity


def _nodes(candidate: Candidate) -> Mapping[Replica, str]:
    return {} if candidate.admission is None else candidate.admission.nodes


def _reserved_by(candidate: Candidate, nodes: Mapping[Replica, str], pods: PodsOfReplicas) -> Iterator[Amounts]:
    missing = list(_without_pod(candidate, nodes, pods))
    each = _requests_by_type(candidate, {replica.type for replica, _ in missing}, pods)
    for replica, place in missing:
        # The replica type may have been removed from the manifest; its assignments are removed in this cycle. One that
        # needs another part of a GPU since gets another place, perhaps on what it would hold here.
        if replica.type in each and is_right_place(each[replica.type][1], place):
            yield node_of(place), request_at_vgpu(*each[replica.type], vgpu_of(place))


def _released_by(candidate: Candidate, pods: PodsOfReplicas) -> Iterator[Amounts]:
    """Amounts of the job's pods that will be deleted, negative for those that will be replaced on the same node.

    Nothing for jobs placed by kube-scheduler, because their assignments are unknown.
    """
    admission = candidate.admission
    if admission is None or is_left_to_kube_scheduler(admission) or has_unassigned_replicas(admission):
        return
    assigned = {place for place in admission.nodes.items() if place[0] not in candidate.status.succeeded_replicas}
    held = [(replica, pod) for replica, pod in pods if holds_resources(pod)]
    continuing = {(replica, bound_place(pod)) for replica, pod in held if not pod.metadata.is_being_deleted}
    for replica, pod in held:
        place = replica, bound_place(pod)
        if not pod.metadata.is_being_deleted and replica not in admission.nodes:
            yield pod.spec.node_name, requests_of(pod)
        elif (
            pod.metadata.is_being_deleted
            and place in assigned - continuing
            and _fits_successor(candidate, replica, pod)
        ):
            continuing.add(place)
            yield pod.spec.node_name, {name: -amount for name, amount in requests_of(pod).items()}


def _without_pod(
    candidate: Candidate, nodes: Mapping[Replica, str], pods: PodsOfReplicas
) -> Iterator[tuple[Replica, str]]:
    covered = {
        (replica, bound_place(pod))
        for replica, pod in pods
        if not pod.is_finished and (not pod.metadata.is_being_deleted or _fits_successor(candidate, replica, pod))
    }
    for replica, node in nodes.items():
        if replica not in candidate.status.succeeded_replicas and (replica, node) not in covered:
            yield replica, node


def _fits_successor(candidate: Candidate, replica: Replica, pod: Pod) -> bool:
    """Whether the pod's successor fits into the pod's resources; the template may have changed since."""
    groups = () if candidate.has_invalid_spec else candidate.job.replica_specs
    place = bound_place(pod)
    held = requests_of(pod)
    requests = (replica_request(group, place) for group in groups if group.type == replica.type)
    return all(fits(each, held) and _marks(each) == _marks(held) for each in requests)


def _marks(amounts: Resources) -> Resources:
    """The marks of a vGPU, of which less is no part of more."""
    return {name: amount for name, amount in amounts.items() if is_mark(name)}


def _requests_by_type(
    candidate: Candidate, types: AbstractSet[ReplicaType], pods: Iterable[tuple[Replica, Pod]]
) -> Mapping[ReplicaType, tuple[Resources, GpuShare | None]]:
    """The requests of each replica type, and its share of a GPU. Types whose template is unknown (invalid spec) take
    them from their pods.
    """
    groups = [group for group in candidate.job.replica_specs if group.type in types]
    if candidate.has_invalid_spec:
        groups = [group for group in groups if group.template.get("spec", {}).get("containers")]
    templates = {group.type: (group_request(group), share_of_template(group.template)) for group in groups}
    if not candidate.has_invalid_spec:
        return templates
    unknown = types - templates.keys()
    from_pods = {
        replica.type: (requests_of(pod), share_of_pod(pod)) for replica, pod in pods if replica.type in unknown
    }
    return {**from_pods, **templates}
