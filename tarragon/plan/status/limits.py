"""The limits of a job's run policy: backoffLimit, activeDeadlineSeconds and ttlSecondsAfterFinished."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tarragon.frameworks.plugin import BackoffCount
from tarragon.job.conditions import BACKOFF_LIMIT_EXCEEDED, DEADLINE_EXCEEDED, FINISHED, LIMIT_EXCEEDED_REASONS
from tarragon.job.model import Replica, TrainingJob
from tarragon.job.status import JobStatus, RestartRecord
from tarragon.job.status_reason import describe_failure
from tarragon.plan.view.job_view import JobView

BATCH_JOB_LIMIT_MESSAGE = "Job has reached the specified backoff limit"
"""What Kubernetes says of a batch Job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceededLimit:
    """A limit that was exceeded. All running pods are then deleted, whatever the clean-up policy."""

    REASONS: ClassVar[frozenset[str]] = LIMIT_EXCEEDED_REASONS

    reason: str
    message: str
    failures: Sequence[Replica] = ()


def exceeded_limit(view: JobView, status: JobStatus) -> ExceededLimit | None:
    return exceeded_backoff_limit(view, status) or exceeded_deadline(view, status)


def exceeded_backoff_limit(view: JobView, status: JobStatus) -> ExceededLimit | None:
    """Check the backoffLimit, as the job's generation counts. Disruptions don't count."""
    limit = view.job.run_policy.backoff_limit
    restarts = _Restarts(records=status.restarts)
    if limit is None or not restarts.counts:
        return None
    message = _message(view, limit, restarts)
    return ExceededLimit(reason=BACKOFF_LIMIT_EXCEEDED, message=message, failures=restarts.most) if message else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Restarts:
    """The restarts that count."""

    records: Mapping[Replica, RestartRecord]

    @property
    def counts(self) -> Mapping[Replica, int]:
        all_counts = {replica: record.counted_for_backoff_limit for replica, record in self.records.items()}
        return {replica: count for replica, count in all_counts.items() if count}

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def in_place(self, replica: Replica | None) -> int:
        record = self.records.get(replica) if replica is not None else None
        return record.container_restarts if record is not None else 0

    @property
    def most(self) -> Sequence[Replica]:
        """The replicas by their number of restarts, the highest first."""
        counts = self.counts
        return sorted(counts, key=lambda replica: (-counts[replica], replica))


def _message(view: JobView, limit: int, restarts: _Restarts) -> str:
    """Return what is said of an exceeded limit; empty if it is not."""
    first = restarts.most[0]
    match view.dialect.backoff_count:
        case BackoffCount.RESTARTS:
            if restarts.total < max(limit, 1):
                return ""
            times = f"{restarts.counts[first]} times" if restarts.counts[first] > 1 else "once"
            all_failures = f"{restarts.total} failures reach" if restarts.total > 1 else "1 failure reaches"
            return f"{all_failures} the backoffLimit of {limit}; {first} has failed {times}"
        case BackoffCount.BATCH_JOB:
            # A restart in place is seen when the next run has begun: as if that had failed, too. The batch Job saw only
            # its own pods, those of the chief.
            if restarts.total <= limit and restarts.in_place(view.job.chief) < max(limit, 1):
                return ""
            member = view.members.get(first)
            failure = member.last_failure if member is not None else None
            suffix = f": {describe_failure(first, failure)}" if failure is not None else ""
            return BATCH_JOB_LIMIT_MESSAGE + suffix


def exceeded_deadline(view: JobView, status: JobStatus) -> ExceededLimit | None:
    due = deadline_at(view.job, status)
    if due is None or view.now < due:
        return None
    seconds = view.job.run_policy.active_deadline_seconds
    return ExceededLimit(
        reason=DEADLINE_EXCEEDED, message=f"the job ran longer than its activeDeadlineSeconds of {seconds}"
    )


def deadline_at(job: TrainingJob, status: JobStatus) -> dt.datetime | None:
    return _after(status.start_time, job.run_policy.active_deadline_seconds)


def expires_at(job: TrainingJob, status: JobStatus) -> dt.datetime | None:
    """Return when a finished job is to be deleted. Jobs finished by other operators may have no completionTime."""
    ends = (condition for condition in status.conditions if condition.is_true and condition.type in FINISHED)
    ended = status.completion_time or next((condition.last_transition_time for condition in ends), None)
    return _after(ended, job.run_policy.ttl_seconds_after_finished)


def _after(start: dt.datetime | None, seconds: int | None) -> dt.datetime | None:
    if start is None or seconds is None:
        return None
    try:
        return start + dt.timedelta(seconds=seconds)
    except OverflowError:
        # Thousands of years: as good as no limit.
        return None
