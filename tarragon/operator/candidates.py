"""The jobs that take part in scheduling, and among them those about which something may be decided now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from tarragon.frameworks.plugin import Dialect, Framework
from tarragon.job.encoding import read_status
from tarragon.job.model import GENERATION_ANNOTATION, Replica, ReplicaGroup, ReplicaType, TrainingJob
from tarragon.job.status import Admission, JobStatus
from tarragon.kube.core import Pod
from tarragon.kube.meta import CustomObject, Key
from tarragon.plan.desired import is_ours, is_placed_by
from tarragon.plan.homes import Nodes, is_unsettled
from tarragon.plan.intake import Intake
from tarragon.plan.others import is_left_to_others
from tarragon.plan.refuse import last_good
from tarragon.plan.scene import may_grow
from tarragon.plan.step import Settings
from tarragon.plan.unplaced import is_left

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


class Candidates:
    """By id. A cluster has few that are `open` and thousands that just run: a round looks at the few."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._all: dict[JobId, Candidate] = {}
        self._open: dict[JobId, Candidate] = {}
        self._has_other_nodes = False

    @property
    def all(self) -> Mapping[JobId, Candidate]:
        return self._all

    @property
    def open(self) -> Mapping[JobId, Candidate]:
        if self._has_other_nodes:
            self._has_other_nodes = False
            for candidate in self._all.values():
                self._sort(candidate)
        return self._open

    def put(self, candidate: Candidate) -> None:
        """What pods of a refused job need is not on record; whoever knew the job before its edit knows it."""
        known = self._all.get(candidate.id)
        if candidate.is_refused and known is not None and known.job.uid == candidate.job.uid:
            candidate = replace(candidate, job=replace(candidate.job, groups=known.job.groups))
        self._all[candidate.id] = candidate
        self._sort(candidate)

    def drop(self, job: JobId) -> None:
        self._all.pop(job, None)
        self._open.pop(job, None)

    def nodes_changed(self) -> None:
        """Some came or went, often many at once: ten thousand jobs are not sorted anew for each of them."""
        self._has_other_nodes = True

    def _sort(self, candidate: Candidate) -> None:
        if is_settled(candidate, self._nodes):
            self._open.pop(candidate.id, None)
        else:
            self._open[candidate.id] = candidate


def takes_part(found: CustomObject) -> bool:
    """Not before it is marked, nor when it is being deleted or over."""
    metadata = found.metadata
    if GENERATION_ANNOTATION not in metadata.annotations or metadata.is_ending:
        return False
    return not read_status(found.status).phase.is_final


def candidate_from(framework: Framework, found: CustomObject, taken: Intake, settings: Settings) -> Candidate | None:
    """None for a job that is suspended, or somebody else's, or was never valid."""
    good = last_good(framework, found, taken)
    if good.job is None or good.dialect is None or good.job.run_policy.suspend:
        return None
    # What is on record of a refused job does not say who keeps it.
    if taken.job is None and is_left_to_others(found.spec):
        return None
    if not is_ours(good.job) or not is_placed_by(good.job, settings.scheduler):
        return None
    return Candidate(
        framework=framework,
        object=found,
        job=good.job,
        dialect=good.dialect,
        status=read_status(found.status),
        is_refused=taken.job is None,
    )


def is_settled(candidate: Candidate, nodes: Nodes) -> bool:
    """Whether it has all that it wishes, and nothing is in its way: no policy would change anything about it.

    Nor about one that is refused: no pod of it is made, and what they would need is not known for sure.
    """
    if candidate.is_refused:
        return True
    admission = candidate.admission
    if admission is None or admission.admitted is None or is_left(admission):
        return False
    if admission.wait is not None or admission.retry is not None or candidate.status.obstacle is not None:
        return False
    if is_unsettled(candidate.status, admission, nodes):
        return False
    wishes = {group.type: least_and_wish(candidate.job, group)[1] for group in candidate.job.groups}
    if any(replica.index >= wishes.get(replica.type, 0) for replica in admission.nodes):
        return False
    return not may_grow(candidate.job, candidate.status) or len(admission.nodes) >= sum(wishes.values())


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
