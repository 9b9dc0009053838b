"""Evaluates inter-pod affinity, anti-affinity and topology spread of jobs, and tracks which jobs a pod affects.

While no pod and no template has such a constraint, nothing is stored and no work is done.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tarragon.job.model import Replica, ReplicaType, TrainingJob
from tarragon.job.places import node_of
from tarragon.kube.core import Pod, PodSpec
from tarragon.kube.meta import Key, ObjectMeta, OwnerReference
from tarragon.kube.scheduling.affinity_terms import LabelPair, Labels, PodTerm
from tarragon.operator.informers.candidates import Candidate, JobId
from tarragon.operator.informers.informers import Informers
from tarragon.plan.nodes.pod_index import LabelIndex, PodIndex, is_placed, required_anti_affinity
from tarragon.plan.nodes.preferences import Scores, score_by_pods
from tarragon.plan.nodes.replica_requests import pod_spec
from tarragon.plan.nodes.topology import FeasibleNodes, GangConstraints, NodeTopology, ReplicaTypePods, satisfies_spread
from tarragon.plan.objects.desired import pod_labels

EligibleNodes = Mapping[ReplicaType, frozenset[str]]
Assignments = Mapping[Replica, str]


@dataclass(frozen=True, slots=True)
class AffinityResult:
    """The constraints of one replica type: eligible nodes, topology spread, and preference scores."""

    constraints: FeasibleNodes
    node_scores: Scores


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedPods:
    """A job's pods that do not exist yet."""

    candidate: Candidate | None
    assignments: Assignments = field(default_factory=dict)
    """Nodes of assigned replicas without a pod."""
    requested_pods: Sequence[Pod] = ()
    """Pods whose creation was requested; their replica may have moved, or their job may be deleted."""


class PodAffinityIndex:
    """A job is evaluated again only if a pod changes that its terms select, or whose anti-affinity selects the job."""

    def __init__(self, informers: Informers) -> None:
        self._informers = informers
        self._sites: NodeTopology | None = None
        self._pods: PodIndex | None = None
        self._expected: dict[JobId, ExpectedPods] = {}
        self._indexed: dict[JobId, list[Pod]] = {}
        self._jobs_by_label: dict[LabelPair | None, dict[JobId, list[PodTerm]]] = {}
        self._labels_by_job: dict[JobId, list[LabelPair | None]] = {}
        self._members_by_label: LabelIndex[tuple[JobId, ReplicaType]] = LabelIndex()
        self._evaluated: dict[JobId, list[ReplicaTypePods]] = {}
        self._dropped: set[JobId] = set()
        self._has_first_pod = False
        informers.pods.add_event_handler(self._pod_changed)

    def evaluate(self, candidate: Candidate, eligible: EligibleNodes) -> Mapping[ReplicaType, AffinityResult]:
        """Evaluate the job's constraints; empty if it has none. `eligible`: nodes allowed by its node constraints."""
        has_constraints = any(
            has_inter_pod_constraints(group.template.get("spec", {})) for group in candidate.job.replica_specs
        )
        if not has_constraints and not self._is_active:
            return {}
        members = self._members(candidate)
        self._track(candidate.id, members)
        pods, sites = self._neighbours(), self._current_sites()
        ties = GangConstraints(members, candidate.job.owner_identity).feasible_nodes(eligible, sites, pods)
        return {
            member.type: AffinityResult(
                ties[member.type], score_by_pods(member, sites, pods) if member.constraints else {}
            )
            for member in members
        }

    def job_changed(self, job: JobId) -> None:
        for member in self._evaluated.pop(job, ()):
            self._members_by_label.drop((job, member.type))
        for label in self._labels_by_job.pop(job, ()):
            jobs = self._jobs_by_label.get(label, {})
            jobs.pop(job, None)
            if not jobs:
                self._jobs_by_label.pop(label, None)
        self._dropped.discard(job)

    def nodes_changed(self) -> None:
        """Nodes or their labels changed, and with them the topology domains."""
        self._sites = None
        self._dropped |= self._evaluated.keys()

    def take_first_pod_flag(self) -> bool:
        """Whether the first pod with anti-affinity has appeared since the last call; it may affect any job."""
        has_first_pod, self._has_first_pod = self._has_first_pod, False
        return has_first_pod

    def take_affected_jobs(self) -> Collection[JobId]:
        """Jobs whose constraints may evaluate differently since the last call."""
        dropped, self._dropped = self._dropped, set()
        return dropped

    def expect_pods(self, job: JobId, coming: ExpectedPods) -> None:
        """Treat the job's expected pods as existing when other jobs are evaluated."""
        if coming.assignments or coming.requested_pods:
            self._expected[job] = coming
        elif self._expected.pop(job, None) is None:
            return
        if self._is_active:
            self._index_expected(job)

    def try_assign(self, candidate: Candidate, eligible: EligibleNodes, places: Assignments) -> bool:
        """Whether newly assigned nodes still satisfy the constraints; if so, their pods are expected from now on."""
        before = {} if candidate.admission is None else candidate.admission.nodes
        added = {replica: node_of(place) for replica, place in places.items() if before.get(replica) != place}
        if not added or not self._is_active:
            return True
        for kind, company in self.evaluate(candidate, eligible).items():
            new = [replica for replica in added if replica.type == kind]
            if any(added[replica] not in company.constraints.eligible for replica in new):
                return False
            if any(not satisfies_spread(spread, places, new) for spread in company.constraints.spreads):
                return False
        expected = self._expected.get(candidate.id, ExpectedPods(candidate=candidate))
        self.expect_pods(
            candidate.id, replace(expected, candidate=candidate, assignments={**expected.assignments, **added})
        )
        return True

    @property
    def _is_active(self) -> bool:
        return self._pods is not None

    def _neighbours(self) -> PodIndex:
        if self._pods is None:
            self._pods = PodIndex(self._informers.pods.objects.values())
            for job in self._expected:
                self._index_expected(job)
        return self._pods

    def _index_expected(self, job: JobId) -> None:
        """Replace the job's expected pods in the index by the current ones."""
        for pod in self._indexed.pop(job, ()):
            self._update_pod(pod.metadata.key, self._informers.pods.objects.get(pod.metadata.key))
            self._mark_affected(pod)
        coming = self._expected.get(job)
        if coming is None:
            return
        # Of two expected pods with one name only one can be created; the later one, with a current assignment, wins.
        self._indexed[job] = [*filter(is_placed, coming.requested_pods), *self._expected_pods(coming)]
        for pod in self._indexed[job]:
            self._update_pod(pod.metadata.key, pod)
            self._mark_affected(pod)

    def _expected_pods(self, coming: ExpectedPods) -> Iterator[Pod]:
        candidate = coming.candidate
        if candidate is None:
            return
        members = {member.type: member for member in self._members(candidate)}
        for replica, node in coming.assignments.items():
            if replica.type in members:
                yield _expected_pod(candidate, replica, members[replica.type], node)

    def _current_sites(self) -> NodeTopology:
        if self._sites is None:
            self._sites = NodeTopology(self._informers.nodes.objects.values())
        return self._sites

    def _members(self, candidate: Candidate) -> list[ReplicaTypePods]:
        job = candidate.job
        return [
            ReplicaTypePods.of(
                group.type, job.key.namespace, shared_labels(candidate, group.type), pod_spec(group.template)
            )
            for group in job.replica_specs
            if group.replicas
        ]

    def _track(self, job: JobId, members: list[ReplicaTypePods]) -> None:
        self.job_changed(job)
        self._evaluated[job] = members
        for member in members:
            self._members_by_label.put((job, member.type), member.labels)
            for term in member.constraints.terms:
                for label in term.required_labels or (None,):
                    self._jobs_by_label.setdefault(label, {}).setdefault(job, []).append(term)
                    self._labels_by_job.setdefault(job, []).append(label)

    def _pod_changed(self, key: Key, old: Pod | None, new: Pod | None) -> None:
        if _as_neighbour(old) == _as_neighbour(new):
            return
        if self._pods is None:
            if new is None or not is_placed(new) or not required_anti_affinity(new):
                return
            self._neighbours()
            self._has_first_pod = True
        self._update_pod(key, new)
        for pod in (old, new):
            if pod is not None and is_placed(pod):
                self._mark_affected(pod)

    def _update_pod(self, key: Key, pod: Pod | None) -> None:
        pods = self._neighbours()
        if pod is None:
            pods.drop(key)
        else:
            pods.put(pod)

    def _mark_affected(self, pod: Pod) -> None:
        """Mark the jobs whose terms select the pod, and the jobs that the pod's anti-affinity selects."""
        namespace, labels = pod.metadata.namespace, pod.metadata.labels
        for label in (None, *labels.items()):
            for job, terms in self._jobs_by_label.get(label, {}).items():
                if job not in self._dropped and any(term.matches(namespace, labels) for term in terms):
                    self._dropped.add(job)
        for term in required_anti_affinity(pod):
            self._dropped |= {job for job, _ in self._members_by_label.with_any_label(term.required_labels)}


def has_inter_pod_constraints(spec: Mapping[str, object]) -> bool:
    """Whether a pod spec has inter-pod constraints; a cheap check, because few do."""
    affinity = spec.get("affinity")
    of_pods = isinstance(affinity, Mapping) and ("podAffinity" in affinity or "podAntiAffinity" in affinity)
    return of_pods or bool(spec.get("topologySpreadConstraints"))


def shared_labels(candidate: Candidate, kind: ReplicaType) -> Labels:
    """Labels that all pods of a replica type share, without those that contain the replica's index."""
    one, other = (
        pod_labels(candidate.framework, candidate.dialect, candidate.job, Replica(kind, index)) for index in (1, 2)
    )
    return {name: value for name, value in one.items() if other.get(name) == value}


def _as_neighbour(pod: Pod | None) -> object:
    """The part of a pod that other pods' constraints depend on."""
    if pod is None or not is_placed(pod):
        return None
    return pod.spec.node_name, pod.metadata.is_being_deleted, pod.metadata.labels, pod.spec.affinity


def _expected_pod(candidate: Candidate, replica: Replica, member: ReplicaTypePods, node: str) -> Pod:
    job: TrainingJob = candidate.job
    owner = OwnerReference(api_version=job.api_version, kind=job.kind, name=job.key.name, uid=job.uid, controller=True)
    metadata = ObjectMeta(
        name=candidate.dialect.names.pod(job, replica),
        namespace=job.key.namespace,
        labels=dict(member.labels),
        owner_references=[owner],
    )
    return Pod(metadata=metadata, spec=PodSpec(node_name=node, affinity=member.spec.affinity))
