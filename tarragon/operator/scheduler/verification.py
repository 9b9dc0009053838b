"""Verifies admissions in job status that this operator's scheduler did not write, before they take effect.

The rules, in this order:

- An admission is accepted if it adds no assignment to those accepted before: this scheduler decided or verified all of
  them. Later changes of the cluster, of a quota or of the spec do not revoke an assignment here.
- On the first sight of a job, any existing pod of the job proves the admission, which is accepted.
- Any other admission is accepted if the scheduler could have decided it now (`scheduling.cycle.admission_claims`).
  Otherwise it is rejected: the last accepted admission is restored, or the job is queued again if there is none.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace

from tarragon.job.model import Replica
from tarragon.job.phase import Phase
from tarragon.job.status import Admission, RefusedAdmission
from tarragon.operator.informers.candidates import Candidate, Candidates, JobId, replicas_of
from tarragon.operator.informers.informers import World
from tarragon.operator.informers.verified_admissions import Known
from tarragon.operator.scheduler.admission.faults import Faults
from tarragon.operator.scheduler.admission.maintenance import Decided
from tarragon.operator.scheduler.admission.update import queued_since
from tarragon.operator.scheduler.snapshot.snapshot_builder import Picture
from tarragon.scheduling.api.snapshot import RunningGang
from tarragon.scheduling.cycle.admission_claims import Claim, Claims

NOT_UNDERSTOOD = "its spec is invalid, so it cannot get new assignments"


class Claimants:
    """Admissions that await verification. Until then, snapshots contain each job's last accepted admission."""

    def __init__(self, informers: World, candidates: Candidates, snapshot_builder: Picture, faults: Faults) -> None:
        self._informers = informers
        self._candidates = candidates
        self._snapshot_builder = snapshot_builder
        self._faults = faults
        self._pending: dict[JobId, Admission] = {}

    def taken_in(self, candidate: Candidate) -> Candidate:
        """The candidate with its accepted admission; an unverified admission is queued for `refused`."""
        job, uid, admission = candidate.id, candidate.object.metadata.uid, candidate.admission
        accepted = self._informers.verified.known(job, uid)
        self._pending.pop(job, None)
        if admission is None or not candidate.is_admitted:
            self._informers.verified.verify(job, candidate.object, admission, {})
            return candidate
        if not self._informers.places_gangs or self._is_accepted(candidate, admission, accepted):
            self._verify(candidate, admission, accepted)
            return candidate
        if accepted is None and candidate.is_refused:
            # Its replicas' requests are unknown; the admission is verified once the spec is valid again.
            self._informers.verified.pass_over(job, candidate.object)
            return candidate
        self._informers.verified.suspect(job)
        self._pending[job] = admission
        return _with_admission(candidate, None if accepted is None else accepted.sound)

    def drop(self, job: JobId) -> None:
        """The job is no longer a candidate."""
        self._pending.pop(job, None)

    def refused(self, now: dt.datetime) -> list[Decided]:
        """Verify all pending admissions: accept the possible ones, and return the others with what replaces them."""
        if not self._pending:
            return []
        claims = Claims(self._snapshot_builder.snapshot((), now))
        rejected: list[Decided] = []
        for job in sorted(self._pending, key=self._creation_order):
            candidate, admission = self._candidates.all[job], self._pending[job]
            why: str | None = None
            is_checked = False
            with self._faults.of(job, "verify its admission"):
                why = self._why_impossible(claims, candidate, admission)
                is_checked = True
            if why is None:
                self._accept(candidate, admission)
                if is_checked:
                    del self._pending[job]
            else:
                rejected.append((candidate, _rejected(candidate, why, now)))
        return rejected

    def _is_accepted(self, candidate: Candidate, admission: Admission, accepted: Known | None) -> bool:
        if accepted is None:
            pods = [*self._informers.pods_of(candidate.object), *self._informers.unmade.of(candidate.id)]
            return any(True for _ in replicas_of(candidate, pods))
        return accepted.covers(admission, candidate.status.finished)

    def _why_impossible(self, claims: Claims, candidate: Candidate, admission: Admission) -> str | None:
        if candidate.is_refused:
            return NOT_UNDERSTOOD
        accepted = self._informers.verified.known(candidate.id, candidate.object.metadata.uid)
        # A finished replica holds no resources, but being finished does not entitle a replica to an assignment.
        finished = candidate.status.finished
        if accepted is not None:
            finished &= accepted.unasked(finished).keys()
        gang = RunningGang(
            name=candidate.name,
            demands=self._snapshot_builder.demands(candidate),
            nodes=admission.nodes,
            elastic=False,
            finished=finished & admission.nodes.keys(),
            queue=candidate.job.key.namespace,
        )
        accepted_places = {} if accepted is None else {**accepted.places, **accepted.places_of(admission)}
        has_run = accepted is None and _has_run(candidate)
        return claims.impossible(Claim(gang=gang, size=admission.size, known=accepted_places, has_run=has_run))

    def _accept(self, candidate: Candidate, admission: Admission) -> None:
        accepted = self._informers.verified.known(candidate.id, candidate.object.metadata.uid)
        accepted_candidate = _with_admission(candidate, admission)
        self._candidates.put(accepted_candidate)
        self._snapshot_builder.job_changed(candidate.id)
        self._verify(accepted_candidate, admission, accepted)

    def _verify(self, candidate: Candidate, admission: Admission, accepted: Known | None) -> None:
        places = admission.nodes
        if candidate.status.finished:
            accepted_places: Mapping[Replica, str] = {} if accepted is None else accepted.places_of(admission)
            # A finished replica holds no resources, so its assignment was not verified.
            places = {
                replica: node
                for replica, node in places.items()
                if replica not in candidate.status.finished or replica in accepted_places
            }
        self._informers.verified.verify(candidate.id, candidate.object, admission, places)

    def _creation_order(self, job: JobId) -> tuple[bool, dt.datetime | None, JobId]:
        """Sort key: oldest job first. The creation timestamp cannot be forged through the status."""
        created = self._candidates.all[job].object.metadata.creation_timestamp
        return created is None, created, job


def _with_admission(candidate: Candidate, admission: Admission | None) -> Candidate:
    return replace(candidate, status=replace(candidate.status, admission=admission))


def _has_run(candidate: Candidate) -> bool:
    status = candidate.status
    return status.phase in {Phase.RUNNING, Phase.RESTARTING} or any(record.uid for record in status.restarts.values())


def _rejected(candidate: Candidate, why: str, now: dt.datetime) -> Admission:
    """The last accepted admission, or a new place in the queue, with the reason of the rejection."""
    before = candidate.admission or Admission(queued=queued_since(candidate, now))
    message = f"the admission in the job's status was ignored because the scheduler could not have decided it: {why}"
    return replace(before, refused=RefusedAdmission(at=now, message=message))
