"""Jobs whose admission on record this operator's scheduler does not know: each is looked at before it counts.

The rule, in this order:

- An admission that adds no place to those that counted before counts: this scheduler has decided it, or has looked at
  it. Nothing that happens to the cluster, to a quota or to the spec later takes a place away here.
- Of a job that this operator sees for the first time, any pod of the job proves the admission: it counts.
- All others count if the scheduler could have decided them now (`scheduling.claims`). If not, they count for nothing:
  what counted before is put back, and a job of which nothing counted before queues anew.
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

NOT_UNDERSTOOD = "its spec is not valid, so no new places can be decided for it"


class Claimants:
    """Until they are looked at, the picture has of each what counted before."""

    def __init__(self, world: World, candidates: Candidates, picture: Picture, faults: Faults) -> None:
        self._world = world
        self._candidates = candidates
        self._picture = picture
        self._faults = faults
        self._claimed: dict[JobId, Admission] = {}

    def taken_in(self, candidate: Candidate) -> Candidate:
        """The candidate with the admission that counts."""
        job, uid, admission = candidate.id, candidate.object.metadata.uid, candidate.admission
        known = self._world.verified.known(job, uid)
        self._claimed.pop(job, None)
        if admission is None or not candidate.is_admitted:
            self._world.verified.verify(job, candidate.object, admission, {})
            return candidate
        if not self._world.places_gangs or self._is_known(candidate, admission, known):
            self._verify(candidate, admission, known)
            return candidate
        if known is None and candidate.is_refused:
            # Nobody knows what its replicas ask for; it is looked at when its spec is valid again.
            self._world.verified.pass_over(job, candidate.object)
            return candidate
        self._world.verified.suspect(job)
        self._claimed[job] = admission
        return _with(candidate, None if known is None else known.sound)

    def drop(self, job: JobId) -> None:
        """It takes no part any more."""
        self._claimed.pop(job, None)

    def refused(self, now: dt.datetime) -> list[Decided]:
        """Those that could not have been decided, with what is to stand in their status. All others count from now."""
        if not self._claimed:
            return []
        claims = Claims(self._picture.snapshot((), now))
        found: list[Decided] = []
        for job in sorted(self._claimed, key=self._age):
            candidate, admission = self._candidates.all[job], self._claimed[job]
            why: str | None = None
            is_judged = False
            with self._faults.of(job, "see whether its admission is possible"):
                why = self._impossible(claims, candidate, admission)
                is_judged = True
            if why is None:
                self._accept(candidate, admission)
                if is_judged:
                    del self._claimed[job]
            else:
                found.append((candidate, _without_it(candidate, why, now)))
        return found

    def _is_known(self, candidate: Candidate, admission: Admission, known: Known | None) -> bool:
        if known is None:
            pods = [*self._world.pods_of(candidate.object), *self._world.unmade.of(candidate.id)]
            return any(True for _ in replicas_of(candidate, pods))
        return known.covers(admission, candidate.status.finished)

    def _impossible(self, claims: Claims, candidate: Candidate, admission: Admission) -> str | None:
        if candidate.is_refused:
            return NOT_UNDERSTOOD
        known = self._world.verified.known(candidate.id, candidate.object.metadata.uid)
        # What is finished holds nothing; that a replica is, is no reason to give it a place.
        finished = candidate.status.finished
        if known is not None:
            finished &= known.unasked(finished).keys()
        gang = RunningGang(
            name=candidate.name,
            demands=self._picture.demands(candidate),
            nodes=admission.nodes,
            elastic=False,
            finished=finished & admission.nodes.keys(),
            queue=candidate.job.key.namespace,
        )
        places = {} if known is None else {**known.places, **known.places_of(admission)}
        has_run = known is None and _has_run(candidate)
        return claims.impossible(Claim(gang=gang, size=admission.size, known=places, has_run=has_run))

    def _accept(self, candidate: Candidate, admission: Admission) -> None:
        known = self._world.verified.known(candidate.id, candidate.object.metadata.uid)
        full = _with(candidate, admission)
        self._candidates.put(full)
        self._picture.job_changed(candidate.id)
        self._verify(full, admission, known)

    def _verify(self, candidate: Candidate, admission: Admission, known: Known | None) -> None:
        places = admission.nodes
        if candidate.status.finished:
            before: Mapping[Replica, str] = {} if known is None else known.places_of(admission)
            # A finished replica holds nothing, so nothing was asked about its place.
            places = {
                replica: node
                for replica, node in places.items()
                if replica not in candidate.status.finished or replica in before
            }
        self._world.verified.verify(candidate.id, candidate.object, admission, places)

    def _age(self, job: JobId) -> tuple[bool, dt.datetime | None, JobId]:
        """The eldest first: when a job was made, nobody can write into its status."""
        created = self._candidates.all[job].object.metadata.creation_timestamp
        return created is None, created, job


def _with(candidate: Candidate, admission: Admission | None) -> Candidate:
    return replace(candidate, status=replace(candidate.status, admission=admission))


def _has_run(candidate: Candidate) -> bool:
    status = candidate.status
    return status.phase in {Phase.RUNNING, Phase.RESTARTING} or any(record.uid for record in status.restarts.values())


def _without_it(candidate: Candidate, why: str, now: dt.datetime) -> Admission:
    """What counted before, or a place in the queue."""
    before = candidate.admission or Admission(queued=queued_since(candidate, now))
    message = f"the status had an admission that the scheduler could not have decided; it counts for nothing: {why}"
    return replace(before, refused=RefusedAdmission(at=now, message=message))
