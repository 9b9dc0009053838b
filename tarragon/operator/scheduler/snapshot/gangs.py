"""Caches the snapshot's waiting and running gangs between scheduling cycles."""

from __future__ import annotations

import bisect
import datetime as dt
from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Generic, TypeVar

from tarragon.kube.core import PriorityClass
from tarragon.kube.meta import Key
from tarragon.operator.informers.candidates import Candidate, Candidates, JobId
from tarragon.operator.informers.informers import World
from tarragon.operator.scheduler.admission.faults import Faults
from tarragon.operator.scheduler.admission.maintenance import Holders
from tarragon.operator.scheduler.admission.update import queued_since
from tarragon.operator.scheduler.snapshot.demand_cache import Demanded
from tarragon.operator.scheduler.snapshot.priorities import urgency
from tarragon.plan.lifecycle.displacement import shunned
from tarragon.plan.lifecycle.start_timeout import is_resting
from tarragon.plan.nodes.left_to_kube_scheduler import is_left
from tarragon.plan.view.job_view import may_grow
from tarragon.scheduling.api.snapshot import Demand, Gang, RunningGang

G = TypeVar("G", Gang, RunningGang)
Order = tuple[object, ...]

TO_UNDERSTAND = "compute its demands"


class _Sorted(Generic[G]):
    """Gangs sorted by unique keys; adding or removing one does not sort the others again."""

    def __init__(self) -> None:
        self._keys: list[Order] = []
        self._gangs: list[G] = []
        self._key_of: dict[JobId, Order] = {}

    def put(self, job: JobId, key: Order, gang: G) -> None:
        self.drop(job)
        position = bisect.bisect_left(self._keys, key)
        self._keys.insert(position, key)
        self._gangs.insert(position, gang)
        self._key_of[job] = key

    def drop(self, job: JobId) -> None:
        key = self._key_of.pop(job, None)
        if key is not None:
            position = bisect.bisect_left(self._keys, key)
            del self._keys[position], self._gangs[position]

    def all(self) -> Sequence[G]:
        return tuple(self._gangs)


class Gangs:
    """Jobs left to kube-scheduler are not gangs. A gang with an invalid edit keeps its last valid form."""

    def __init__(
        self, informers: World, candidates: Candidates, maintenance: Holders, demand_cache: Demanded, faults: Faults
    ) -> None:
        self._informers = informers
        self._candidates = candidates
        self._maintenance = maintenance
        self._demand_cache = demand_cache
        self._faults = faults
        self._waiting: _Sorted[Gang] = _Sorted()
        self._running: _Sorted[RunningGang] = _Sorted()
        self._invalid: _Sorted[RunningGang] = _Sorted()
        self._stale: set[JobId] = set()
        self._time_dependent: set[JobId] = set()
        """Jobs whose gangs depend on the time, so they are rebuilt in every cycle."""
        informers.priorities.subscribe(self._priority_changed)

    def job_changed(self, job: JobId) -> None:
        self._stale.add(job)

    def renew(self, now: dt.datetime) -> None:
        """Rebuild the gangs that may have changed. Must be called in each cycle before the other methods."""
        always = {*self._time_dependent, *self._candidates.unsettled, *self._faults.jobs()}
        for job in sorted(self._stale | set(self._demand_cache.dropped()) | always):
            self._time_dependent.discard(job)
            self._waiting.drop(job)
            self._running.drop(job)
            self._invalid.drop(job)
            candidate = self._candidates.all.get(job)
            if candidate is not None and not is_left(candidate.admission):
                with self._faults.of(job, TO_UNDERSTAND):
                    self._rebuild(candidate, now)
        self._stale.clear()

    def waiting(self, left_out: Collection[str]) -> Sequence[Gang]:
        """The waiting gangs in queue order, without those named in `left_out`."""
        gangs = self._waiting.all()
        return [gang for gang in gangs if gang.name not in left_out] if left_out else gangs

    def running(self, left_out: Collection[str]) -> Sequence[RunningGang]:
        """The running gangs by name, without those named in `left_out`."""
        gangs = self._running.all()
        return [gang for gang in gangs if gang.name not in left_out] if left_out else gangs

    def beside(self, left_out: Collection[str]) -> Sequence[RunningGang]:
        """Running gangs that the policy may not touch: those in `left_out`, and those whose spec is invalid."""
        return [*self._invalid.all(), *(gang for gang in self._running.all() if left_out and gang.name in left_out)]

    def _rebuild(self, candidate: Candidate, now: dt.datetime) -> None:
        if candidate.is_refused:
            if candidate.is_admitted:
                gang = self._running_gang(candidate, now)
                self._invalid.put(candidate.id, (gang.name,), gang)
            return
        if is_timed(candidate, now):
            self._time_dependent.add(candidate.id)
        if candidate.is_admitted:
            gang = self._running_gang(candidate, now)
            self._running.put(candidate.id, (gang.name,), gang)
        elif not is_resting(candidate.admission, now):
            waiting_gang = self._waiting_gang(candidate, now)
            self._waiting.put(candidate.id, waiting_gang.order, waiting_gang)

    def _waiting_gang(self, candidate: Candidate, now: dt.datetime) -> Gang:
        job_priority = urgency(candidate.job, self._informers.priorities.objects)
        return Gang(
            name=candidate.name,
            queued=queued_since(candidate, now),
            demands=self._demand_cache.by(candidate),
            priority=job_priority.priority,
            preempts=job_priority.preempts,
            queue=candidate.job.key.namespace,
        )

    def _running_gang(self, candidate: Candidate, now: dt.datetime) -> RunningGang:
        admission = candidate.admission
        assert admission is not None  # noqa: S101 - only called for admitted candidates
        return RunningGang(
            name=candidate.name,
            demands=_without_nodes(self._demand_cache.by(candidate), shunned(candidate.status, now)),
            nodes=admission.nodes,
            elastic=may_grow(candidate.job, candidate.status) and not is_resting(admission, now),
            whole=candidate.job.elastic is None,
            homeless=self._maintenance.homeless(candidate, admission),
            finished=candidate.status.finished & admission.nodes.keys(),
            priority=urgency(candidate.job, self._informers.priorities.objects).priority,
            queue=candidate.job.key.namespace,
            admitted=admission.admitted,
            resized=admission.resized,
            wished=admission.wish or admission.size,
        )

    def _priority_changed(self, _: Key, old: PriorityClass | None, new: PriorityClass | None) -> None:
        if old != new:
            self._stale |= self._candidates.all.keys()


def is_timed(candidate: Candidate, now: dt.datetime) -> bool:
    """Whether the job's gang may differ in the next cycle although no object has changed."""
    admission = candidate.admission
    return admission is None or is_resting(admission, now) or bool(shunned(candidate.status, now))


def _without_nodes(demands: Sequence[Demand], nodes: AbstractSet[str]) -> Sequence[Demand]:
    """The demands without nodes that refused one of the gang's pods. Only a waiting gang may try such nodes again."""
    return [replace(demand, eligible=demand.eligible - nodes) for demand in demands] if nodes else demands
