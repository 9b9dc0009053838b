"""Estimates the work of gangs, and remembers what jobs of each kind have shown.

What a job itself has shown is in its status. What others of its kind have shown is in memory: a new leader learns it
from the jobs that still exist, finished ones included, and has forgotten those that were deleted.
"""

from __future__ import annotations

import datetime as dt
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from tarragon.job.annotations import is_elastic_by_restart
from tarragon.job.phase import Phase
from tarragon.job.status import JobStatus
from tarragon.operator.informers.candidates import Candidate, JobId
from tarragon.plan.status.work import counted_group, work_record
from tarragon.scheduling.api.snapshot import Demand
from tarragon.scheduling.api.work import SpeedupPrior, WorkEstimate, devices_of, unknown_work
from tarragon.scheduling.estimates.estimate import MIN_RESTART_SECONDS, estimate_work, is_believed
from tarragon.scheduling.estimates.kind_history import KindHistory
from tarragon.scheduling.estimates.work_record import WorkRecord

MAX_KINDS = 2000
"""Of so many kinds the history is kept: those that were used last."""
MAX_FINISHED_JOBS = 100_000
"""So many finished jobs are known to have been counted."""

KindKey = tuple[str, str]
"""The kind of a job, and the unit in which it reports. Rates in different units can't be compared."""


class WorkEstimates:
    """The estimates of all jobs, from their statuses and from the histories of their kinds."""

    def __init__(self) -> None:
        self._histories: OrderedDict[KindKey, KindHistory] = OrderedDict()
        self._unit_of_kind: dict[str, str] = {}
        self._history_of_job: dict[JobId, tuple[KindHistory, str]] = {}
        """The history in which a job that has not finished is counted, and its UID."""
        self._finished: OrderedDict[str, None] = OrderedDict()

    def estimate(self, candidate: Candidate, demands: Sequence[Demand], now: dt.datetime) -> WorkEstimate:
        """Return what is known about the job's work."""
        prior = _prior(candidate, demands)
        work, progress = candidate.status.work, candidate.status.progress
        history = self._history(work.kind, work.unit)
        if not work.sizes and work.stretch is None and history is None:
            return _unknown(prior)
        record = _with_resize_cost(work_record(work, progress, now), candidate)
        if history is None:
            history = self._history_to_fill(work.kind, work.unit) if record.rates() else KindHistory()
        if not is_believed(record, prior):
            self.forget(candidate.id)
        elif record.rates():
            self._count(candidate, history, record)
        return estimate_work(record, history, prior)

    def job_finished(self, uid: str, status: JobStatus) -> None:
        """Learn from a finished job, once. Only what a job needed until it succeeded says how much work it was.

        A job that was not believed in the end teaches its kind no rates.
        """
        work = status.work
        if status.phase is not Phase.SUCCEEDED or work.needed is None or not work.kind or uid in self._finished:
            return
        self._finished[uid] = None
        if len(self._finished) > MAX_FINISHED_JOBS:
            self._finished.popitem(last=False)
        history = self._history_to_fill(work.kind, work.unit)
        if work.believed_until is None or work.needed <= work.believed_until:
            history.record(uid, WorkRecord(sizes=work.sizes, total=status.progress.total if status.progress else None))
        history.finish(uid, work.needed)

    def forget(self, job: JobId) -> None:
        """Forget a job that was deleted or has finished; what it has shown until it succeeded stays."""
        history, uid = self._history_of_job.pop(job, (None, ""))
        if history is not None and uid not in self._finished:
            history.forget(uid)

    def _count(self, candidate: Candidate, history: KindHistory, record: WorkRecord) -> None:
        uid = candidate.job.uid
        before = self._history_of_job.get(candidate.id)
        if before is not None and before != (history, uid):
            self.forget(candidate.id)
        self._history_of_job[candidate.id] = history, uid
        history.record(uid, record)

    def _history(self, kind: str, unit: str) -> KindHistory | None:
        """Return the history of the kind. A job that has not reported yet is expected to use the unit of the others."""
        key = kind, unit or self._unit_of_kind.get(kind, "")
        history = self._histories.get(key)
        if history is not None:
            self._histories.move_to_end(key)
        return history

    def _history_to_fill(self, kind: str, unit: str) -> KindHistory:
        if not kind:
            return KindHistory()  # the job was last written by an earlier version
        history = self._history(kind, unit)
        if history is None:
            self._unit_of_kind[kind] = unit or self._unit_of_kind.get(kind, "")
            history = self._histories[kind, self._unit_of_kind[kind]] = KindHistory()
            if len(self._histories) > MAX_KINDS:
                dropped, _ = self._histories.popitem(last=False)
                self._unit_of_kind.pop(dropped[0], None)
        return history


def _prior(candidate: Candidate, demands: Sequence[Demand]) -> SpeedupPrior:
    kind = counted_group(candidate.job).type
    demand = next(demand for demand in demands if demand.type == kind)
    return SpeedupPrior(max(1, demand.requested), devices_of(demand.resources))


def _with_resize_cost(record: WorkRecord, candidate: Candidate) -> WorkRecord:
    """Return the record without what a start took, if the gang has not been resized yet and would not start again."""
    admission, job = candidate.admission, candidate.job
    is_in_place = job.elastic_policy is not None and not is_elastic_by_restart(job)
    has_been_resized = admission is not None and admission.resized_at is not None
    return replace(record, restart_seconds=MIN_RESTART_SECONDS) if is_in_place and not has_been_resized else record


@lru_cache(maxsize=1024)
def _unknown(prior: SpeedupPrior) -> WorkEstimate:
    """One object for all gangs that are equal in this: thousands of them are compared in every cycle."""
    return unknown_work(prior.requested, prior.devices)
