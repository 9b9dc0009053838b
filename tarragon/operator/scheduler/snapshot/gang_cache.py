"""Caches the snapshot's waiting and running gangs between scheduling cycles."""

from __future__ import annotations

import bisect
import datetime as dt
from collections import OrderedDict
from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Generic, TypeVar

from tarragon.job.status import JobStatus
from tarragon.kube.core import PriorityClass
from tarragon.kube.meta import Key
from tarragon.operator.informers.candidates import Candidate, Candidates, JobId, is_for_kube_scheduler
from tarragon.operator.informers.informers import Informers
from tarragon.operator.scheduler.admission.maintenance import AdmissionMaintenance
from tarragon.operator.scheduler.admission.update import queued_since
from tarragon.operator.scheduler.job_errors import JobErrors
from tarragon.operator.scheduler.snapshot.demand_cache import DemandCache
from tarragon.operator.scheduler.snapshot.priorities import priority_of
from tarragon.operator.scheduler.snapshot.work_estimates import WorkEstimates
from tarragon.plan.lifecycle.displacement import avoided_nodes
from tarragon.plan.lifecycle.start_timeout import is_in_backoff
from tarragon.plan.view.job_view import may_grow
from tarragon.scheduling.api.snapshot import Demand, RunningGang, WaitingGang
from tarragon.scheduling.api.work import WorkEstimate

G = TypeVar("G", WaitingGang, RunningGang)
Order = tuple[object, ...]

WORK_REFRESH = dt.timedelta(minutes=1)
"""What is estimated of a gang is at most about so old: it changes with the time, and with what others of its kind show.
"""
MAX_REFRESHED_PER_CYCLE = 500
"""So many estimates are refreshed per cycle, the oldest ones first: there may be ten thousand gangs."""
COMPUTE_DEMANDS = "compute its demands"


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

    def with_work(self, job: JobId, work: WorkEstimate) -> None:
        """Replace what is estimated of the gang, if that has changed."""
        key = self._key_of.get(job)
        if key is not None:
            position = bisect.bisect_left(self._keys, key)
            gang = self._gangs[position]
            if gang.work != work:
                self._gangs[position] = replace(gang, work=work)

    def drop(self, job: JobId) -> None:
        key = self._key_of.pop(job, None)
        if key is not None:
            position = bisect.bisect_left(self._keys, key)
            del self._keys[position], self._gangs[position]

    def all(self) -> Sequence[G]:
        return tuple(self._gangs)


class GangCache:
    """The waiting and the running gangs, kept between cycles.

    Jobs left to kube-scheduler are not gangs. A gang with an invalid edit keeps its last valid form.
    """

    def __init__(
        self,
        informers: Informers,
        candidates: Candidates,
        maintenance: AdmissionMaintenance,
        demand_cache: DemandCache,
        job_errors: JobErrors,
    ) -> None:
        self._informers = informers
        self._candidates = candidates
        self._maintenance = maintenance
        self._demand_cache = demand_cache
        self._job_errors = job_errors
        self._waiting: _Sorted[WaitingGang] = _Sorted()
        self._running: _Sorted[RunningGang] = _Sorted()
        self._invalid: _Sorted[RunningGang] = _Sorted()
        self._estimates = WorkEstimates()
        self._estimated_at: OrderedDict[JobId, dt.datetime] = OrderedDict()
        """When the work of each gang was last estimated, the longest ago first."""
        self._stale: set[JobId] = set()
        self._time_dependent: set[JobId] = set()
        """Jobs whose gangs depend on the time, so they are rebuilt in every cycle."""
        informers.priority_classes.add_event_handler(self._priority_changed)

    def job_changed(self, job: JobId) -> None:
        self._stale.add(job)

    def job_finished(self, uid: str, status: JobStatus) -> None:
        """Learn from a finished job how much work its kind is."""
        self._estimates.job_finished(uid, status)

    def refresh(self, now: dt.datetime) -> None:
        """Rebuild the gangs that may have changed. Must be called in each cycle before the other methods."""
        always = {*self._time_dependent, *self._candidates.displaced, *self._job_errors.jobs()}
        for job in sorted(self._stale | set(self._demand_cache.take_changed_jobs()) | always):
            self._time_dependent.discard(job)
            self._waiting.drop(job)
            self._running.drop(job)
            self._invalid.drop(job)
            self._estimated_at.pop(job, None)
            candidate = self._candidates.all.get(job)
            if candidate is not None and not is_for_kube_scheduler(candidate):
                with self._job_errors.isolate(job, COMPUTE_DEMANDS):
                    self._rebuild(candidate, now)
            if candidate is None:
                self._estimates.forget(job)
        self._stale.clear()
        self._refresh_work(now)

    def waiting(self, left_out: Collection[str]) -> Sequence[WaitingGang]:
        """The waiting gangs in queue order, without those named in `left_out`."""
        gangs = self._waiting.all()
        return [gang for gang in gangs if gang.name not in left_out] if left_out else gangs

    def running(self, left_out: Collection[str]) -> Sequence[RunningGang]:
        """The running gangs by name, without those named in `left_out`."""
        gangs = self._running.all()
        return [gang for gang in gangs if gang.name not in left_out] if left_out else gangs

    def unchangeable(self, left_out: Collection[str]) -> Sequence[RunningGang]:
        """Running gangs that the policy may not touch: those in `left_out`, and those whose spec is invalid."""
        return [*self._invalid.all(), *(gang for gang in self._running.all() if left_out and gang.name in left_out)]

    def _rebuild(self, candidate: Candidate, now: dt.datetime) -> None:
        if candidate.has_invalid_spec:
            if candidate.is_admitted:
                gang = self._running_gang(candidate, now)
                self._invalid.put(candidate.id, (gang.name,), gang)
            return
        if is_time_dependent(candidate, now):
            self._time_dependent.add(candidate.id)
        if candidate.is_admitted:
            gang = self._running_gang(candidate, now)
            self._running.put(candidate.id, (gang.name,), gang)
        elif not is_in_backoff(candidate.admission, now):
            waiting_gang = self._waiting_gang(candidate, now)
            self._waiting.put(candidate.id, waiting_gang.sort_key, waiting_gang)

    def _refresh_work(self, now: dt.datetime) -> None:
        """Estimate the work of gangs anew of which the last estimate is too old, or from the future."""
        for _ in range(min(MAX_REFRESHED_PER_CYCLE, len(self._estimated_at))):
            job, estimated_at = next(iter(self._estimated_at.items()))
            if abs(now - estimated_at) < WORK_REFRESH:
                return
            self._estimated_at[job] = now
            self._estimated_at.move_to_end(job)
            with self._job_errors.isolate(job, COMPUTE_DEMANDS):
                work = self._work(self._candidates.all[job], now)
                self._waiting.with_work(job, work)
                self._running.with_work(job, work)

    def _work(self, candidate: Candidate, now: dt.datetime) -> WorkEstimate:
        self._estimated_at[candidate.id] = now
        self._estimated_at.move_to_end(candidate.id)
        return self._estimates.estimate(candidate, self._demand_cache.demands_of(candidate), now)

    def _waiting_gang(self, candidate: Candidate, now: dt.datetime) -> WaitingGang:
        job_priority = priority_of(candidate.job, self._informers.priority_classes.objects)
        return WaitingGang(
            name=candidate.name,
            queued_at=queued_since(candidate, now),
            demands=self._demand_cache.demands_of(candidate),
            priority=job_priority.value,
            can_preempt=job_priority.can_preempt,
            queue=candidate.job.key.namespace,
            work=self._work(candidate, now),
        )

    def _running_gang(self, candidate: Candidate, now: dt.datetime) -> RunningGang:
        admission = candidate.admission
        assert admission is not None  # noqa: S101 - only called for admitted candidates
        return RunningGang(
            name=candidate.name,
            demands=_without_nodes(self._demand_cache.demands_of(candidate), avoided_nodes(candidate.status, now)),
            nodes=admission.nodes,
            is_elastic=may_grow(candidate.job, candidate.status) and not is_in_backoff(admission, now),
            resizes_by_restart=candidate.job.elastic_policy is None,
            displaced=self._maintenance.displaced_replicas(candidate, admission),
            finished=candidate.status.succeeded_replicas & admission.nodes.keys(),
            priority=priority_of(candidate.job, self._informers.priority_classes.objects).value,
            queue=candidate.job.key.namespace,
            queued_at=admission.queued_at,
            admitted_at=admission.admitted_at,
            resized_at=admission.resized_at,
            last_requested=admission.requested_size or admission.size,
            work=self._work(candidate, now),
        )

    def _priority_changed(self, _: Key, old: PriorityClass | None, new: PriorityClass | None) -> None:
        if old != new:
            self._stale |= self._candidates.all.keys()


def is_time_dependent(candidate: Candidate, now: dt.datetime) -> bool:
    """Whether the job's gang may differ in the next cycle although no object has changed."""
    admission = candidate.admission
    return admission is None or is_in_backoff(admission, now) or bool(avoided_nodes(candidate.status, now))


def _without_nodes(demands: Sequence[Demand], nodes: AbstractSet[str]) -> Sequence[Demand]:
    """The demands without nodes that refused one of the gang's pods. Only a waiting gang may try such nodes again."""
    return [replace(demand, eligible_nodes=demand.eligible_nodes - nodes) for demand in demands] if nodes else demands
