"""The jobs that take part in scheduling, and among them those about which something may be decided now."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from tarragon.frameworks.plugin import Dialect, Framework
from tarragon.job.model import GENERATION_ANNOTATION, Replica, ReplicaGroup, ReplicaType, TrainingJob
from tarragon.job.status import Admission, JobStatus, Wait
from tarragon.kube.core import Pod
from tarragon.kube.meta import CustomObject, Key
from tarragon.plan.input.decode_and_validate import Intake
from tarragon.plan.lifecycle.displacement import Nodes, is_unsettled
from tarragon.plan.nodes.left_to_kube_scheduler import is_left
from tarragon.plan.objects.desired import is_ours, is_placed_by
from tarragon.plan.objects.settings import Settings
from tarragon.plan.reconcile.adoption import is_nowhere
from tarragon.plan.reconcile.invalid_spec import last_good
from tarragon.plan.reconcile.managed_by import is_left_to_others

JobId = tuple[str, Key]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A job that takes part in scheduling, as far as the caches and our own last write know."""

    framework: Framework
    object: CustomObject
    job: TrainingJob
    dialect: Dialect
    status: JobStatus
    is_refused: bool = False
    """The job is what it was before an edit that makes no sense: it keeps its places, and gets no others."""

    @property
    def id(self) -> JobId:
        return self.framework.kind, self.job.key

    @property
    def name(self) -> str:
        """What a policy calls it, and people read in "… came first": two kinds may have jobs of one name."""
        return f"{self.framework.kind} {self.job.key}"

    @property
    def admission(self) -> Admission | None:
        return self.status.admission

    @property
    def is_admitted(self) -> bool:
        return self.admission is not None and self.admission.admitted is not None

    @property
    def has_retry(self) -> bool:
        return self.admission is not None and self.admission.retry is not None


class Those(Mapping[JobId, Candidate]):
    """The candidates of which something is true, by id: a round looks at the few that it concerns."""

    def __init__(self, claim: Callable[[Candidate], bool]) -> None:
        self._claim = claim
        self._found: dict[JobId, Candidate] = {}

    def __getitem__(self, job: JobId) -> Candidate:
        return self._found[job]

    def __iter__(self) -> Iterator[JobId]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def put(self, candidate: Candidate) -> None:
        if self._claim(candidate):
            self._found[candidate.id] = candidate
        else:
            self._found.pop(candidate.id, None)

    def drop(self, job: JobId) -> None:
        self._found.pop(job, None)


class Candidates:
    """By id, in groups that have nothing in common but that some rule is about them.

    A job that is refused is in no group but `all`: nothing is decided about it, and it keeps what it has.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self.all = Those(lambda _: True)
        self.hindered = Those(is_hindered)
        self.unrecorded = Those(is_unrecorded)
        self.left = Those(lambda candidate: not candidate.is_refused and is_left(candidate.admission))
        self.unsettled = Those(self._is_unsettled)
        self._groups = (self.all, self.hindered, self.unrecorded, self.left, self.unsettled)
        self._on: dict[str, set[JobId]] = {}
        self._names: dict[str, JobId] = {}
        self.waits: dict[str, Wait] = {}
        """What is on record of those that wait, by what a policy calls them."""

    def put(self, candidate: Candidate) -> None:
        """What pods of a refused job need is not on record; whoever knew the job before its edit knows it."""
        known = self.all.get(candidate.id)
        if candidate.is_refused and known is not None and known.job.uid == candidate.job.uid:
            candidate = replace(candidate, job=replace(candidate.job, groups=known.job.groups))
        self._leave(known)
        for node in _nodes_of(candidate):
            self._on.setdefault(node, set()).add(candidate.id)
        self._names[candidate.name] = candidate.id
        wait = None if candidate.admission is None else candidate.admission.wait
        if wait is None:
            self.waits.pop(candidate.name, None)
        else:
            self.waits[candidate.name] = wait
        for group in self._groups:
            group.put(candidate)

    def drop(self, job: JobId) -> None:
        known = self.all.get(job)
        self._leave(known)
        if known is not None:
            self._names.pop(known.name, None)
            self.waits.pop(known.name, None)
        for group in self._groups:
            group.drop(job)

    def named(self, name: str) -> Candidate:
        """By what a policy calls it."""
        return self.all[self._names[name]]

    def on(self, node: str) -> Collection[JobId]:
        """Those that have places there."""
        return frozenset(self._on.get(node, ()))

    def node_changed(self, node: str) -> None:
        """Whoever has places there may have to look for others, or need not any more."""
        for job in self.on(node):
            self.unsettled.put(self.all[job])

    def _is_unsettled(self, candidate: Candidate) -> bool:
        admission = candidate.admission
        if candidate.is_refused or admission is None or admission.admitted is None or is_left(admission):
            return False
        return is_unsettled(candidate.status, admission, self._nodes)

    def _leave(self, known: Candidate | None) -> None:
        if known is None:
            return
        for node in _nodes_of(known):
            self._on[node].discard(known.id)
            if not self._on[node]:
                del self._on[node]


def _nodes_of(candidate: Candidate) -> Collection[str]:
    return set() if candidate.admission is None else set(candidate.admission.nodes.values())


def is_hindered(candidate: Candidate) -> bool:
    """Whether it holds places in vain, or has tried in vain and may be over it."""
    if candidate.is_refused or candidate.admission is None:
        return False
    return candidate.status.obstacle is not None or candidate.has_retry


def is_unrecorded(candidate: Candidate) -> bool:
    """Whether it may run although nothing says so, or have a pod that somebody else binds."""
    return not candidate.is_refused and (candidate.admission is None or is_nowhere(candidate.admission))


def takes_part(found: CustomObject, status: JobStatus) -> bool:
    """Not before it is marked, nor when it is being deleted or over."""
    metadata = found.metadata
    if GENERATION_ANNOTATION not in metadata.annotations or metadata.is_ending:
        return False
    return not status.phase.is_final


def candidate_from(
    framework: Framework, found: CustomObject, taken: Intake, status: JobStatus, settings: Settings
) -> Candidate | None:
    """None for a job that is suspended, or somebody else's, or was never valid."""
    good = last_good(framework, found, taken)
    if good.job is None or good.dialect is None or good.job.run_policy.suspend:
        return None
    # What is on record of a refused job does not say who keeps it.
    if good.problems and is_left_to_others(found.spec):
        return None
    if not is_ours(good.job) or not is_placed_by(good.job, settings.scheduler):
        return None
    return Candidate(
        framework=framework,
        object=found,
        job=good.job,
        dialect=good.dialect,
        status=status,
        is_refused=bool(good.problems),
    )


def replicas_of(candidate: Candidate, pods: Iterable[Pod]) -> Iterator[tuple[Replica, Pod]]:
    """Which replica each of its pods is: names of pods that were taken over end in what nobody can work out."""
    for pod in pods:
        replica = candidate.dialect.names.replica(candidate.job, pod.metadata.name)
        if replica is not None:
            yield replica, pod


def least_and_wish(job: TrainingJob, group: ReplicaGroup) -> tuple[int, int]:
    """The replica that decides the job is never taken away, whatever a later wish says."""
    chief = job.chief
    floor = 1 if chief is not None and chief.type is group.type else 0
    wish = max(group.wish, floor)
    if job.elastic is None or group.type is not ReplicaType.WORKER:
        return wish, wish
    wish = min(max(wish, job.elastic.minimum), job.elastic.maximum)
    return min(job.elastic.minimum, wish), wish


def most(job: TrainingJob, group: ReplicaGroup) -> int:
    """To how many it may grow where nobody needs the room; the wish where it does not grow beyond it."""
    _, wish = least_and_wish(job, group)
    if job.elastic is None or group.type is not ReplicaType.WORKER:
        return wish
    return max(wish, job.elastic.maximum)
