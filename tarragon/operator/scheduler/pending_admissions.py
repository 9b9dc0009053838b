"""Verifies admissions in job status that this operator's scheduler did not write, before they take effect.

The rules, in this order:

- An admission is accepted if it adds no assignment to those accepted before: this scheduler decided or verified all of
  them. Later changes of the cluster, of a quota or of the spec do not revoke an assignment here.
- On the first sight of a job, any existing pod of the job proves the admission, which is accepted.
- Any other admission is accepted if the scheduler could have decided it now, see
  `scheduling.cycle.admission_verification`. Otherwise it is rejected: the last accepted admission is restored, or the
  job is queued again if there is none.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace

from tarragon.job.model import Replica
from tarragon.job.phase import Phase
from tarragon.job.status import Admission, DiscardedAdmission
from tarragon.operator.informers.accepted_admissions import AcceptedAdmission
from tarragon.operator.informers.candidates import Candidate, Candidates, JobId, pods_by_replica
from tarragon.operator.informers.informers import Informers
from tarragon.operator.scheduler.admission.maintenance import AdmissionUpdate
from tarragon.operator.scheduler.admission.update import queued_since
from tarragon.operator.scheduler.job_errors import JobErrors
from tarragon.operator.scheduler.snapshot.snapshot_builder import SnapshotBuilder
from tarragon.scheduling.api.snapshot import RunningGang
from tarragon.scheduling.cycle.admission_verification import AdmissionClaim, AdmissionVerifier

INVALID_SPEC = "its spec is invalid, so it cannot get new assignments"


class PendingAdmissions:
    """Admissions that await verification. Until then, snapshots contain each job's last accepted admission."""

    def __init__(
        self, informers: Informers, candidates: Candidates, snapshot_builder: SnapshotBuilder, job_errors: JobErrors
    ) -> None:
        self._informers = informers
        self._candidates = candidates
        self._snapshot_builder = snapshot_builder
        self._job_errors = job_errors
        self._pending: dict[JobId, Admission] = {}

    def with_accepted_admission(self, candidate: Candidate) -> Candidate:
        """The candidate with its accepted admission; an unverified admission is queued for `verify_all`."""
        job, uid, admission = candidate.id, candidate.object.metadata.uid, candidate.admission
        accepted = self._informers.accepted_admissions.get(job, uid)
        self._pending.pop(job, None)
        if admission is None or not candidate.is_admitted:
            self._informers.accepted_admissions.accept(job, candidate.object, admission, {})
            return candidate
        if not self._informers.can_place_pods or self._is_accepted(candidate, admission, accepted):
            self._verify(candidate, admission, accepted)
            return candidate
        if accepted is None and candidate.has_invalid_spec:
            # Its replicas' requests are unknown; the admission is verified once the spec is valid again.
            self._informers.accepted_admissions.accept_undecided(job, candidate.object)
            return candidate
        self._informers.accepted_admissions.revoke(job)
        self._pending[job] = admission
        return _with_admission(candidate, None if accepted is None else accepted.fully_accepted)

    def drop(self, job: JobId) -> None:
        """The job is no longer a candidate."""
        self._pending.pop(job, None)

    def verify_all(self, now: dt.datetime) -> list[AdmissionUpdate]:
        """Verify all pending admissions: accept the possible ones, and return the others with what replaces them."""
        if not self._pending:
            return []
        claims = AdmissionVerifier(self._snapshot_builder.build((), now))
        rejected: list[AdmissionUpdate] = []
        for job in sorted(self._pending, key=self._creation_order):
            candidate, admission = self._candidates.all[job], self._pending[job]
            why: str | None = None
            is_checked = False
            with self._job_errors.isolate(job, "verify its admission"):
                why = self._why_impossible(claims, candidate, admission)
                is_checked = True
            if why is None:
                self._accept(candidate, admission)
                if is_checked:
                    del self._pending[job]
            else:
                rejected.append((candidate, _rejected(candidate, why, now)))
        return rejected

    def _is_accepted(self, candidate: Candidate, admission: Admission, accepted: AcceptedAdmission | None) -> bool:
        if accepted is None:
            pods = [*self._informers.pods_of(candidate.object), *self._informers.assumed_pods.pods_of(candidate.id)]
            return any(True for _ in pods_by_replica(candidate, pods))
        return accepted.covers(admission, candidate.status.succeeded_replicas)

    def _why_impossible(self, claims: AdmissionVerifier, candidate: Candidate, admission: Admission) -> str | None:
        if candidate.has_invalid_spec:
            return INVALID_SPEC
        accepted = self._informers.accepted_admissions.get(candidate.id, candidate.object.metadata.uid)
        # A finished replica holds no resources, but being finished does not entitle a replica to an assignment.
        finished = candidate.status.succeeded_replicas
        if accepted is not None:
            finished &= accepted.initially_finished(finished).keys()
        gang = RunningGang(
            name=candidate.name,
            demands=self._snapshot_builder.demands(candidate),
            nodes=admission.nodes,
            is_elastic=False,
            finished=finished & admission.nodes.keys(),
            queue=candidate.job.key.namespace,
        )
        accepted_places = (
            {} if accepted is None else {**accepted.assignments, **accepted.accepted_assignments(admission)}
        )
        has_run = accepted is None and _has_run(candidate)
        return claims.rejection(
            AdmissionClaim(gang=gang, size=admission.size, accepted=accepted_places, had_pods=has_run)
        )

    def _accept(self, candidate: Candidate, admission: Admission) -> None:
        accepted = self._informers.accepted_admissions.get(candidate.id, candidate.object.metadata.uid)
        accepted_candidate = _with_admission(candidate, admission)
        self._candidates.put(accepted_candidate)
        self._snapshot_builder.job_changed(candidate.id)
        self._verify(accepted_candidate, admission, accepted)

    def _verify(self, candidate: Candidate, admission: Admission, accepted: AcceptedAdmission | None) -> None:
        places = admission.nodes
        if candidate.status.succeeded_replicas:
            accepted_places: Mapping[Replica, str] = (
                {} if accepted is None else accepted.accepted_assignments(admission)
            )
            # A finished replica holds no resources, so its assignment was not verified.
            places = {
                replica: node
                for replica, node in places.items()
                if replica not in candidate.status.succeeded_replicas or replica in accepted_places
            }
        self._informers.accepted_admissions.accept(candidate.id, candidate.object, admission, places)

    def _creation_order(self, job: JobId) -> tuple[bool, dt.datetime | None, JobId]:
        """Sort key: oldest job first. The creation timestamp cannot be forged through the status."""
        created = self._candidates.all[job].object.metadata.creation_timestamp
        return created is None, created, job


def _with_admission(candidate: Candidate, admission: Admission | None) -> Candidate:
    return replace(candidate, status=replace(candidate.status, admission=admission))


def _has_run(candidate: Candidate) -> bool:
    status = candidate.status
    return status.phase in {Phase.RUNNING, Phase.RESTARTING} or any(
        record.pod_uid for record in status.restarts.values()
    )


def _rejected(candidate: Candidate, why: str, now: dt.datetime) -> Admission:
    """The last accepted admission, or a new place in the queue, with the reason of the rejection."""
    before = candidate.admission or Admission(queued_at=queued_since(candidate, now))
    message = f"the admission in the job's status was ignored because the scheduler could not have decided it: {why}"
    return replace(before, discarded=DiscardedAdmission(at=now, message=message))
