"""The candidates (jobs that take part in scheduling), indexed by what a scheduling cycle has to check."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from tarragon.frameworks.dialect_detection import recorded_generation
from tarragon.frameworks.plugin import Dialect, Framework
from tarragon.job.model import Replica, ReplicaSpec, TrainingJob, gang_name
from tarragon.job.places import node_of
from tarragon.job.status import Admission, JobStatus, WaitReason
from tarragon.kube.core import Pod
from tarragon.kube.meta import CustomObject, Key
from tarragon.plan.input.decode_and_validate import DecodedJob
from tarragon.plan.lifecycle.displacement import NodesByKey, may_have_displaced_replicas
from tarragon.plan.nodes.left_to_kube_scheduler import claims_devices, is_left_to_kube_scheduler
from tarragon.plan.objects.desired import is_managed_by_tarragon, is_placed_by
from tarragon.plan.objects.settings import OperatorSettings
from tarragon.plan.reconcile.adoption import has_unassigned_replicas
from tarragon.plan.reconcile.invalid_spec import with_last_valid_spec
from tarragon.plan.reconcile.manager_on_record import is_managed_by_other

JobId = tuple[str, Key]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A job that takes part in scheduling, from the caches and the scheduler's own last write."""

    framework: Framework
    object: CustomObject
    job: TrainingJob
    dialect: Dialect
    status: JobStatus
    has_invalid_spec: bool = False
    """The spec is invalid, so `job` is the last valid form: it keeps its assignments and gets no new ones."""

    @property
    def id(self) -> JobId:
        return self.framework.kind, self.job.key

    @property
    def name(self) -> str:
        """The name of the job's gang."""
        return gang_name(self.framework.kind, self.job.key)

    @property
    def admission(self) -> Admission | None:
        return self.status.admission

    @property
    def is_admitted(self) -> bool:
        return self.admission is not None and self.admission.admitted_at is not None

    @property
    def has_retry(self) -> bool:
        return self.admission is not None and self.admission.backoff is not None


class CandidateIndex(Mapping[JobId, Candidate]):
    """An index of the candidates that satisfy a predicate, by id."""

    def __init__(self, predicate: Callable[[Candidate], bool]) -> None:
        self._predicate = predicate
        self._by_id: dict[JobId, Candidate] = {}

    def __getitem__(self, job: JobId) -> Candidate:
        return self._by_id[job]

    def __iter__(self) -> Iterator[JobId]:
        return iter(self._by_id)

    def __len__(self) -> int:
        return len(self._by_id)

    def put(self, candidate: Candidate) -> None:
        if self._predicate(candidate):
            self._by_id[candidate.id] = candidate
        else:
            self._by_id.pop(candidate.id, None)

    def drop(self, job: JobId) -> None:
        self._by_id.pop(job, None)


class Candidates:
    """All candidates by id, and the indexes that scheduling cycles need.

    A candidate with an invalid spec is only in `all`: no decision is made about it, and it keeps its assignments.
    """

    def __init__(self, nodes: NodesByKey) -> None:
        self._nodes = nodes
        self.all = CandidateIndex(lambda _: True)
        self.start_blocked = CandidateIndex(is_start_blocked)
        self.unrecorded = CandidateIndex(is_unrecorded)
        self.left_to_kube_scheduler = CandidateIndex(
            lambda candidate: not candidate.has_invalid_spec and is_for_kube_scheduler(candidate)
        )
        self.displaced = CandidateIndex(self._is_unsettled)
        self._indexes = (self.all, self.start_blocked, self.unrecorded, self.left_to_kube_scheduler, self.displaced)
        self._jobs_on: dict[str, set[JobId]] = {}
        self._by_name: dict[str, JobId] = {}
        self.recorded_waits: dict[str, WaitReason] = {}
        """The recorded waits, by candidate name."""

    def put(self, candidate: Candidate) -> None:
        """Add or replace a candidate. With an invalid spec, it keeps the replica groups of its previous form."""
        previous = self.all.get(candidate.id)
        if candidate.has_invalid_spec and previous is not None and previous.job.uid == candidate.job.uid:
            candidate = replace(candidate, job=replace(candidate.job, replica_specs=previous.job.replica_specs))
        self._unindex_nodes(previous)
        for node in _nodes_of(candidate):
            self._jobs_on.setdefault(node, set()).add(candidate.id)
        self._by_name[candidate.name] = candidate.id
        wait = None if candidate.admission is None else candidate.admission.wait
        if wait is None:
            self.recorded_waits.pop(candidate.name, None)
        else:
            self.recorded_waits[candidate.name] = wait
        for index in self._indexes:
            index.put(candidate)

    def drop(self, job: JobId) -> None:
        previous = self.all.get(job)
        self._unindex_nodes(previous)
        if previous is not None:
            self._by_name.pop(previous.name, None)
            self.recorded_waits.pop(previous.name, None)
        for index in self._indexes:
            index.drop(job)

    def by_name(self, name: str) -> Candidate:
        """The candidate of that `Candidate.name`."""
        return self.all[self._by_name[name]]

    def jobs_on(self, node: str) -> Collection[JobId]:
        """The jobs with replicas assigned to the node."""
        return frozenset(self._jobs_on.get(node, ()))

    def node_changed(self, node: str) -> None:
        """Check again whether the node's jobs have to move replicas."""
        for job in self.jobs_on(node):
            self.displaced.put(self.all[job])

    def _is_unsettled(self, candidate: Candidate) -> bool:
        admission = candidate.admission
        if (
            candidate.has_invalid_spec
            or admission is None
            or admission.admitted_at is None
            or is_left_to_kube_scheduler(admission)
        ):
            return False
        return may_have_displaced_replicas(candidate.status, admission, self._nodes)

    def _unindex_nodes(self, previous: Candidate | None) -> None:
        if previous is None:
            return
        for node in _nodes_of(previous):
            self._jobs_on[node].discard(previous.id)
            if not self._jobs_on[node]:
                del self._jobs_on[node]


def _nodes_of(candidate: Candidate) -> Collection[str]:
    return set() if candidate.admission is None else set(map(node_of, candidate.admission.nodes.values()))


def is_start_blocked(candidate: Candidate) -> bool:
    """Whether the job's pods cannot be created or bound, or an earlier attempt to start has failed."""
    if candidate.has_invalid_spec or candidate.admission is None:
        return False
    return candidate.status.obstacle is not None or candidate.has_retry


def is_for_kube_scheduler(candidate: Candidate) -> bool:
    """Whether kube-scheduler places the job: it was left to it before, or waits and claims devices."""
    if candidate.is_admitted:
        return is_left_to_kube_scheduler(candidate.admission)
    return claims_devices(candidate.job)


def is_unrecorded(candidate: Candidate) -> bool:
    """Whether the job may run without a recorded admission, or have a pod that another scheduler binds."""
    return not candidate.has_invalid_spec and (
        candidate.admission is None or has_unassigned_replicas(candidate.admission)
    )


def is_candidate(obj: CustomObject, status: JobStatus) -> bool:
    """Whether the job takes part in scheduling: Tarragon manages it, and it is neither being deleted nor finished."""
    if recorded_generation(obj) is None or obj.metadata.is_being_deleted:
        return False
    return not status.phase.is_final


def candidate_from(
    framework: Framework, found: CustomObject, taken: DecodedJob, status: JobStatus, settings: OperatorSettings
) -> Candidate | None:
    """The candidate; None for a job that is suspended, managed by another controller, or was never valid."""
    last_valid = with_last_valid_spec(framework, found, taken)
    if last_valid.job is None or last_valid.dialect is None or last_valid.job.run_policy.suspend:
        return None
    # The last valid form of a job does not record which controller manages it.
    if last_valid.problems and is_managed_by_other(found.spec):
        return None
    if not is_managed_by_tarragon(last_valid.job) or not is_placed_by(last_valid.job, settings.scheduler_name):
        return None
    return Candidate(
        framework=framework,
        object=found,
        job=last_valid.job,
        dialect=last_valid.dialect,
        status=status,
        has_invalid_spec=bool(last_valid.problems),
    )


def pods_by_replica(candidate: Candidate, pods: Iterable[Pod]) -> Iterator[tuple[Replica, Pod]]:
    """Pair the job's pods with their replicas, leaving out pods whose names do not identify a replica."""
    for pod in pods:
        replica = candidate.dialect.names.replica_of(candidate.job, pod.metadata.name)
        if replica is not None:
            yield replica, pod


def min_and_requested(job: TrainingJob, group: ReplicaSpec) -> tuple[int, int]:
    """The minimum and the requested number of replicas; the chief replica is always included."""
    chief = job.chief
    floor = 1 if chief is not None and chief.type == group.type else 0
    wish = max(group.replicas, floor)
    if job.elastic_policy is None or not group.role.is_elastic:
        return wish, wish
    wish = min(max(wish, job.elastic_policy.min_replicas), job.elastic_policy.max_replicas)
    return min(job.elastic_policy.min_replicas, wish), wish


def max_replicas(job: TrainingJob, group: ReplicaSpec) -> int:
    """The number of replicas up to which the group may grow into idle capacity; at least the requested number."""
    _, wish = min_and_requested(job, group)
    if job.elastic_policy is None or not group.role.is_elastic:
        return wish
    return max(wish, job.elastic_policy.max_replicas)
