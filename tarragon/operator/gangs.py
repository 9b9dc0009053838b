"""Jobs as a policy sees them: gangs that wait, and gangs that run."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from tarragon.operator.candidates import Candidate, Candidates, JobId
from tarragon.operator.decided import queued_since
from tarragon.operator.demanded import Demanded
from tarragon.operator.gather import World
from tarragon.operator.holders import Holders
from tarragon.operator.priorities import urgency
from tarragon.plan.homes import shunned
from tarragon.plan.patience import is_resting
from tarragon.plan.scene import may_grow
from tarragon.plan.unplaced import is_left
from tarragon.scheduling.snapshot import Demand, Gang, RunningGang


class Gangs:
    """Those that are left to kube-scheduler are none, nor is one whose last edit makes no sense."""

    def __init__(self, world: World, candidates: Candidates, holders: Holders, demanded: Demanded) -> None:
        self._world = world
        self._candidates = candidates
        self._holders = holders
        self._demanded = demanded

    def waiting(self, left_out: Collection[JobId], now: dt.datetime) -> Sequence[Gang]:
        """In their order."""
        found = [
            self._gang(candidate, now)
            for candidate in self._candidates.all.values()
            if not candidate.is_admitted and not candidate.is_refused
            if not is_resting(candidate.admission, now) and candidate.id not in left_out
        ]
        return sorted(found, key=lambda gang: gang.order)

    def running(self, left_out: Collection[JobId], now: dt.datetime) -> Sequence[RunningGang]:
        """By name."""
        found = [
            self._running(candidate, now)
            for candidate in self._candidates.all.values()
            if candidate.is_admitted and not candidate.is_refused
            if not is_left(candidate.admission) and candidate.id not in left_out
        ]
        return sorted(found, key=lambda gang: gang.name)

    def _gang(self, candidate: Candidate, now: dt.datetime) -> Gang:
        urgent = urgency(candidate.job, self._world.priorities.objects)
        return Gang(
            name=candidate.name,
            queued=queued_since(candidate, now),
            demands=self._demanded.by(candidate),
            priority=urgent.priority,
            preempts=urgent.preempts,
            queue=candidate.job.key.namespace,
        )

    def _running(self, candidate: Candidate, now: dt.datetime) -> RunningGang:
        admission = candidate.admission
        assert admission is not None  # noqa: S101 - of those that are admitted
        return RunningGang(
            name=candidate.name,
            demands=_elsewhere(self._demanded.by(candidate), shunned(candidate.status, now)),
            nodes=admission.nodes,
            elastic=may_grow(candidate.job, candidate.status) and not is_resting(admission, now),
            whole=candidate.job.elastic is None,
            homeless=self._holders.homeless(candidate, admission),
            finished=candidate.status.finished & admission.nodes.keys(),
            priority=urgency(candidate.job, self._world.priorities.objects).priority,
            queue=candidate.job.key.namespace,
            admitted=admission.admitted,
            resized=admission.resized,
            wished=admission.wish or admission.size,
        )


def _elsewhere(demands: Sequence[Demand], nodes: AbstractSet[str]) -> Sequence[Demand]:
    """Where a node has not taken one of its pods, another may; while a gang only waits, it may try that node again."""
    return [replace(demand, eligible=demand.eligible - nodes) for demand in demands] if nodes else demands
