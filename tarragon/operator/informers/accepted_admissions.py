"""Tracks which admissions are accepted: those that this operator's scheduler decided or verified.

Anyone who may write a job's status can write an admission, so the reconciler creates no pods for an admission that the
scheduler has not verified. The state is in memory: after a restart, each admission is verified once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from tarragon.job.model import Replica
from tarragon.job.status import Admission
from tarragon.job.status_encoding import encode_admission, raw_admission, recorded_status
from tarragon.kube.meta import CustomObject, Json
from tarragon.operator.informers.candidates import JobId
from tarragon.plan.nodes.left_to_kube_scheduler import is_left_to_kube_scheduler

ASSIGNMENT_FIELDS = ("admitted", "nodes", "size")
"""Fields of an admission that determine where replicas may run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedAdmission:
    """The accepted part of a job's admission."""

    uid: str
    admission: Admission | None
    """The recorded admission when it was last verified."""
    assignments: Mapping[Replica, str] = field(default_factory=dict)
    """Its accepted assignments, without those of replicas that were already finished at the first verification."""
    last_decision: Admission | None = None
    """The scheduler's last decision, which may not be written yet."""

    @property
    def fully_accepted(self) -> Admission | None:
        """The verified admission, if all of its assignments are accepted."""
        if self.admission is None or any(replica not in self.assignments for replica in self.admission.nodes):
            return None
        return self.admission

    def covers(self, admission: Admission, finished: AbstractSet[Replica]) -> bool:
        """Whether all assignments are accepted, and also the size if the job is left to kube-scheduler."""
        accepted = [each for each in (self.admission, self.last_decision) if each is not None]
        if is_left_to_kube_scheduler(admission) and all(admission.size != each.size for each in accepted):
            return False
        if admission.nodes == self.assignments:
            return True
        finished_from_start = self.initially_finished(finished)
        places = self.accepted_assignments(admission)
        return all(
            replica in places or finished_from_start.get(replica) == node for replica, node in admission.nodes.items()
        )

    def initially_finished(self, finished: AbstractSet[Replica]) -> Mapping[Replica, str]:
        """Unverified assignments of replicas that were finished at the first verification and still are."""
        nodes = {} if self.admission is None else self.admission.nodes
        return {replica: nodes[replica] for replica in finished if replica in nodes and replica not in self.assignments}

    def accepted_assignments(self, admission: Admission) -> Mapping[Replica, str]:
        """The accepted assignments of the admission."""
        decided = {} if self.last_decision is None else self.last_decision.nodes
        return {
            replica: node
            for replica, node in admission.nodes.items()
            if node in (self.assignments.get(replica), decided.get(replica))
        }


class AcceptedAdmissions:
    """Accepted admissions by job. Jobs that are no candidates are accepted per resource version."""

    def __init__(self) -> None:
        self._accepted: dict[JobId, AcceptedAdmission] = {}
        self._accepted_fields: dict[JobId, tuple[str, Json]] = {}
        self._accepted_versions: dict[JobId, str] = {}
        self._denied: set[JobId] = set()
        self._handlers: list[Callable[[JobId], None]] = []

    def subscribe(self, handler: Callable[[JobId], None]) -> None:
        """Call `handler` with each job for which `is_accepted` returned False and that has been verified since."""
        self._handlers.append(handler)

    def get(self, job: JobId, uid: str) -> AcceptedAdmission | None:
        """The accepted part of the job's admission; None for a job that has not been verified yet."""
        accepted = self._accepted.get(job)
        return accepted if accepted is not None and accepted.uid == uid else None

    def record_decision(self, job: JobId, uid: str, admission: Admission) -> None:
        """Record a decision. Must be called before the write, so that a lost response does not make it look foreign."""
        accepted = self.get(job, uid) or AcceptedAdmission(uid=uid, admission=None)
        self._accepted[job] = replace(accepted, last_decision=admission)

    def accept(
        self, job: JobId, found: CustomObject, admission: Admission | None, places: Mapping[Replica, str]
    ) -> None:
        """Accept the object's admission, and `places` of it permanently, whatever changes in the cluster."""
        uid = found.metadata.uid
        accepted = self.get(job, uid)
        decided = accepted.last_decision if accepted is not None else None
        self._accepted[job] = AcceptedAdmission(uid=uid, admission=admission, assignments=places, last_decision=decided)
        self._accepted_fields[job] = uid, _compared_fields(found)
        self._accepted_versions.pop(job, None)
        self._notify_if_denied(job)

    def accept_undecided(self, job: JobId, found: CustomObject) -> None:
        """Accept this version of a job that the scheduler does not decide about."""
        self._accepted.pop(job, None)
        self._accepted_fields.pop(job, None)
        self._accepted_versions[job] = found.metadata.resource_version
        self._notify_if_denied(job)

    def revoke(self, job: JobId) -> None:
        """Stop acting on the recorded admission until it is verified or replaced."""
        self._accepted_fields.pop(job, None)
        self._accepted_versions.pop(job, None)

    def forget(self, job: JobId) -> None:
        """The job was deleted."""
        self._accepted.pop(job, None)
        self._accepted_fields.pop(job, None)
        self._accepted_versions.pop(job, None)
        self._denied.discard(job)

    def is_accepted(self, job: JobId, found: CustomObject) -> bool:
        """Whether the reconciler may act on this object's admission. If not, subscribers are called once it may."""
        compared = _compared_fields(found)
        if compared["admitted"] is None:
            return True
        if self._accepted_fields.get(job) == (found.metadata.uid, compared):
            return True
        if self._accepted_versions.get(job) == found.metadata.resource_version:
            return True
        if self._is_last_decision(job, found.metadata.uid, compared):
            return True  # The watch was faster than the response to the scheduler's write.
        if found.metadata.is_being_deleted or recorded_status(found).phase.is_final:
            return True  # Such a job is only cleaned up, or ignored.
        self._denied.add(job)
        return False

    def _is_last_decision(self, job: JobId, uid: str, compared: Mapping[str, Json]) -> bool:
        accepted = self.get(job, uid)
        if accepted is None or accepted.last_decision is None:
            return False
        return compared == _assignments(encode_admission(accepted.last_decision))

    def _notify_if_denied(self, job: JobId) -> None:
        if job in self._denied:
            self._denied.discard(job)
            for handler in self._handlers:
                handler(job)


def _compared_fields(found: CustomObject) -> Mapping[str, Json]:
    return _assignments(raw_admission(found.status))


def _assignments(admission: Mapping[str, Json]) -> Mapping[str, Json]:
    return {name: admission.get(name) for name in ASSIGNMENT_FIELDS}
