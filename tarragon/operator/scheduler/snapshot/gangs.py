"""Jobs as a policy sees them, kept between rounds: gangs that wait, and gangs that run."""

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

TO_UNDERSTAND = "understand what it asks for"


class _Sorted(Generic[G]):
    """In the order of keys that are all different; one that comes or goes costs no sorting of the others."""

    def __init__(self) -> None:
        self._keys: list[Order] = []
        self._gangs: list[G] = []
        self._key_of: dict[JobId, Order] = {}

    def put(self, job: JobId, key: Order, gang: G) -> None:
        self.drop(job)
        place = bisect.bisect_left(self._keys, key)
        self._keys.insert(place, key)
        self._gangs.insert(place, gang)
        self._key_of[job] = key

    def drop(self, job: JobId) -> None:
        key = self._key_of.pop(job, None)
        if key is not None:
            place = bisect.bisect_left(self._keys, key)
            del self._keys[place], self._gangs[place]

    def all(self) -> Sequence[G]:
        return tuple(self._gangs)


class Gangs:
    """Those that are left to kube-scheduler are none. One whose last edit makes no sense stays what it was."""

    def __init__(
        self, world: World, candidates: Candidates, holders: Holders, demanded: Demanded, faults: Faults
    ) -> None:
        self._world = world
        self._candidates = candidates
        self._holders = holders
        self._demanded = demanded
        self._faults = faults
        self._waiting: _Sorted[Gang] = _Sorted()
        self._running: _Sorted[RunningGang] = _Sorted()
        self._refused: _Sorted[RunningGang] = _Sorted()
        self._stale: set[JobId] = set()
        self._timed: set[JobId] = set()
        """What these are depends on the time, or on pods: they are made anew in each round."""
        world.priorities.subscribe(self._priority_changed)

    def job_changed(self, job: JobId) -> None:
        self._stale.add(job)

    def renew(self, now: dt.datetime) -> None:
        """To be called in each round, before anything is asked."""
        again = {*self._timed, *self._candidates.unsettled, *self._faults.jobs()}
        for job in sorted(self._stale | set(self._demanded.dropped()) | again):
            self._timed.discard(job)
            self._waiting.drop(job)
            self._running.drop(job)
            self._refused.drop(job)
            candidate = self._candidates.all.get(job)
            if candidate is not None and not is_left(candidate.admission):
                with self._faults.of(job, TO_UNDERSTAND):
                    self._take_in(candidate, now)
        self._stale.clear()

    def waiting(self, left_out: Collection[str]) -> Sequence[Gang]:
        """In their order, without those of these names."""
        gangs = self._waiting.all()
        return [gang for gang in gangs if gang.name not in left_out] if left_out else gangs

    def running(self, left_out: Collection[str]) -> Sequence[RunningGang]:
        """By name, without those of these names."""
        gangs = self._running.all()
        return [gang for gang in gangs if gang.name not in left_out] if left_out else gangs

    def beside(self, left_out: Collection[str]) -> Sequence[RunningGang]:
        """Those of these names that run, and those that keep what they have whatever else happens."""
        return [*self._refused.all(), *(gang for gang in self._running.all() if left_out and gang.name in left_out)]

    def _take_in(self, candidate: Candidate, now: dt.datetime) -> None:
        if candidate.is_refused:
            if candidate.is_admitted:
                refused = self._running_gang(candidate, now)
                self._refused.put(candidate.id, (refused.name,), refused)
            return
        if is_timed(candidate, now):
            self._timed.add(candidate.id)
        if candidate.is_admitted:
            running = self._running_gang(candidate, now)
            self._running.put(candidate.id, (running.name,), running)
        elif not is_resting(candidate.admission, now):
            waiting = self._waiting_gang(candidate, now)
            self._waiting.put(candidate.id, waiting.order, waiting)

    def _waiting_gang(self, candidate: Candidate, now: dt.datetime) -> Gang:
        urgent = urgency(candidate.job, self._world.priorities.objects)
        return Gang(
            name=candidate.name,
            queued=queued_since(candidate, now),
            demands=self._demanded.by(candidate),
            priority=urgent.priority,
            preempts=urgent.preempts,
            queue=candidate.job.key.namespace,
        )

    def _running_gang(self, candidate: Candidate, now: dt.datetime) -> RunningGang:
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

    def _priority_changed(self, _: Key, old: PriorityClass | None, new: PriorityClass | None) -> None:
        if old != new:
            self._stale |= self._candidates.all.keys()


def is_timed(candidate: Candidate, now: dt.datetime) -> bool:
    """Whether it may be something else in the next round though nothing about it has changed."""
    admission = candidate.admission
    return admission is None or is_resting(admission, now) or bool(shunned(candidate.status, now))


def _elsewhere(demands: Sequence[Demand], nodes: AbstractSet[str]) -> Sequence[Demand]:
    """Where a node has not taken one of its pods, another may; while a gang only waits, it may try that node again."""
    return [replace(demand, eligible=demand.eligible - nodes) for demand in demands] if nodes else demands
