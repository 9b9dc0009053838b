"""The limits of a job's run policy: backoffLimit, activeDeadlineSeconds and ttlSecondsAfterFinished."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tarragon.job.conditions import BACKOFF_LIMIT_EXCEEDED, DEADLINE_EXCEEDED, FINISHED, LIMIT_EXCEEDED_REASONS
from tarragon.job.model import Replica, TrainingJob
from tarragon.job.status import JobStatus
from tarragon.plan.view.job_view import JobView


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
    """Check the backoffLimit: the job fails as soon as its restarts reach the limit. Disruptions don't count."""
    limit = view.job.run_policy.backoff_limit
    if limit is None:
        return None
    by_program = {
        replica: record.counted_for_backoff_limit
        for replica, record in status.restarts.items()
        if record.counted_for_backoff_limit
    }
    total = sum(by_program.values())
    if total < max(limit, 1):
        return None
    by_restarts = sorted(by_program, key=lambda replica: (-by_program[replica], replica))
    times = f"{by_program[by_restarts[0]]} times" if by_program[by_restarts[0]] > 1 else "once"
    return ExceededLimit(
        reason=BACKOFF_LIMIT_EXCEEDED,
        message=f"{total} restarts reach the backoffLimit of {limit}; {by_restarts[0]} was restarted {times}",
        failures=by_restarts,
    )


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
