"""Builds the Snapshot for the policy from the caches and the scheduler's own last writes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence

from tarragon.job.status import Admission
from tarragon.operator.informers.candidates import Candidate, Candidates, JobId
from tarragon.operator.informers.informers import World
from tarragon.operator.informers.usage import Usage
from tarragon.operator.scheduler.admission.faults import Faults
from tarragon.operator.scheduler.admission.maintenance import Holders
from tarragon.operator.scheduler.snapshot.demand_cache import Demanded, Demands
from tarragon.operator.scheduler.snapshot.gangs import Gangs
from tarragon.operator.scheduler.snapshot.nodes import NodeStates
from tarragon.operator.scheduler.snapshot.reservations import Reservations
from tarragon.scheduling.api.rules import Rules
from tarragon.scheduling.api.snapshot import Snapshot


class Picture:
    """Tracks changes between cycles, so that the cost of a snapshot depends on what has changed."""

    def __init__(
        self, informers: World, candidates: Candidates, maintenance: Holders, faults: Faults, rules: Callable[[], Rules]
    ) -> None:
        self._candidates = candidates
        self._rules = rules
        self._faults = faults
        self._demand_cache = Demanded(informers)
        self._reservations = Reservations(informers, faults, self._demand_cache.companies)
        self._nodes = NodeStates(informers, Usage(informers.pods), self._reservations)
        self._gangs = Gangs(informers, candidates, maintenance, self._demand_cache, faults)

    @property
    def unread(self) -> int:
        """Number of jobs with changes that the next snapshot has to read."""
        return self._reservations.unread

    def job_changed(self, job: JobId) -> None:
        self._demand_cache.job_changed(job)
        self._gangs.job_changed(job)
        self._reservations.job_changed(job)

    def nodes_changed(self, jobs: Iterable[JobId]) -> None:
        """Invalidate jobs with replicas assigned to nodes that have changed."""
        for job in jobs:
            self._gangs.job_changed(job)

    def forget(self, job: JobId) -> None:
        """The job was deleted and was not a candidate."""
        self._reservations.forget(job)

    def demands(self, candidate: Candidate) -> Demands:
        """The job's current demands."""
        return self._demand_cache.by(candidate)

    def agrees(self, candidate: Candidate, admission: Admission) -> bool:
        """Whether the admission's nodes still satisfy pod affinity after other jobs' decisions since the snapshot."""
        return self._demand_cache.agrees(candidate, admission.nodes)

    def snapshot(self, decided: Sequence[tuple[Candidate, Admission]], now: dt.datetime) -> Snapshot:
        """The snapshot without gangs decided earlier in the cycle; what they will hold is subtracted from the nodes."""
        self._reservations.reckon(self._candidates.all)
        self._gangs.renew(now)
        undecidable = (self._candidates.all.get(job) for job in self._faults.undecidable())
        left_out = {candidate.name for candidate in (*(each for each, _ in decided), *undecidable) if candidate}
        self._nodes.know_ports(self._demand_cache.ports)
        return Snapshot(
            now=now,
            nodes=self._nodes.less(self._reservations.beyond(decided)),
            away=self._nodes.away(),
            waiting=self._gangs.waiting(left_out),
            running=self._gangs.running(left_out),
            beside=self._gangs.beside(left_out),
            rules=self._rules(),
        )
