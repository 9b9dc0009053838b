"""The Snapshot that a policy decides on, from the caches and our own last writes."""

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
    """Between two rounds it takes in what changes; a snapshot then costs what has changed."""

    def __init__(
        self, world: World, candidates: Candidates, holders: Holders, faults: Faults, rules: Callable[[], Rules]
    ) -> None:
        self._candidates = candidates
        self._rules = rules
        self._faults = faults
        self._demanded = Demanded(world)
        self._reservations = Reservations(world, faults, self._demanded.companies)
        self._nodes = NodeStates(world, Usage(world.pods), self._reservations)
        self._gangs = Gangs(world, candidates, holders, self._demanded, faults)

    @property
    def unread(self) -> int:
        """Jobs of which something is to be taken in."""
        return self._reservations.unread

    def job_changed(self, job: JobId) -> None:
        self._demanded.job_changed(job)
        self._gangs.job_changed(job)
        self._reservations.job_changed(job)

    def nodes_changed(self, jobs: Iterable[JobId]) -> None:
        """Jobs that have places on nodes which are not what they were."""
        for job in jobs:
            self._gangs.job_changed(job)

    def forget(self, job: JobId) -> None:
        """It is gone, and took no part."""
        self._reservations.forget(job)

    def demands(self, candidate: Candidate) -> Demands:
        """What the job asks for now."""
        return self._demanded.by(candidate)

    def agrees(self, candidate: Candidate, admission: Admission) -> bool:
        """Whether its places are still right after what others have got since the snapshot."""
        return self._demanded.agrees(candidate, admission.nodes)

    def snapshot(self, decided: Sequence[tuple[Candidate, Admission]], now: dt.datetime) -> Snapshot:
        """Of gangs that this round has decided about already, what they will hold is taken off, and no more is said."""
        self._reservations.reckon(self._candidates.all)
        self._gangs.renew(now)
        undecidable = (self._candidates.all.get(job) for job in self._faults.undecidable())
        left_out = {candidate.name for candidate in (*(each for each, _ in decided), *undecidable) if candidate}
        self._nodes.know_ports(self._demanded.ports)
        return Snapshot(
            now=now,
            nodes=self._nodes.less(self._reservations.beyond(decided)),
            away=self._nodes.away(),
            waiting=self._gangs.waiting(left_out),
            running=self._gangs.running(left_out),
            beside=self._gangs.beside(left_out),
            rules=self._rules(),
        )
