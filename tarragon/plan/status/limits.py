"""The limits of a job's run policy: backoffLimit, activeDeadlineSeconds and ttlSecondsAfterFinished."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tarragon.job.conditions import BACKOFF_LIMIT_EXCEEDED, DEADLINE_EXCEEDED, FINAL, LIMITS
from tarragon.job.model import Replica, TrainingJob
from tarragon.job.status import JobStatus
from tarragon.plan.view.job_view import Scene


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A limit that was exceeded. All running pods are then deleted, whatever the clean-up policy."""

    REASONS: ClassVar[frozenset[str]] = LIMITS

    reason: str
    message: str
    failures: Sequence[Replica] = ()


def reached(view: Scene, status: JobStatus) -> Limit | None:
    return backoff(view, status) or deadline(view, status)


def backoff(view: Scene, status: JobStatus) -> Limit | None:
    """Check the backoffLimit: the job fails as soon as its restarts reach the limit. Disruptions don't count."""
    limit = view.job.run_policy.backoff_limit
    if limit is None:
        return None
    by_program = {replica: record.by_program for replica, record in status.restarts.items() if record.by_program}
    total = sum(by_program.values())
    if total < max(limit, 1):
        return None
    by_restarts = sorted(by_program, key=lambda replica: (-by_program[replica], replica))
    times = f"{by_program[by_restarts[0]]} times" if by_program[by_restarts[0]] > 1 else "once"
    return Limit(
        reason=BACKOFF_LIMIT_EXCEEDED,
        message=f"{total} restarts reach the backoffLimit of {limit}; {by_restarts[0]} was restarted {times}",
        failures=by_restarts,
    )


def deadline(view: Scene, status: JobStatus) -> Limit | None:
    due = deadline_at(view.job, status)
    if due is None or view.now < due:
        return None
    seconds = view.job.run_policy.active_deadline
    return Limit(reason=DEADLINE_EXCEEDED, message=f"the job ran longer than its activeDeadlineSeconds of {seconds}")


def deadline_at(job: TrainingJob, status: JobStatus) -> dt.datetime | None:
    return _after(status.started, job.run_policy.active_deadline)


def expires_at(job: TrainingJob, status: JobStatus) -> dt.datetime | None:
    """Return when a finished job is to be deleted. Jobs finished by other operators may have no completionTime."""
    ends = (condition for condition in status.conditions if condition.is_true and condition.type in FINAL)
    ended = status.completed or next((condition.changed for condition in ends), None)
    return _after(ended, job.run_policy.ttl_after_finished)


def _after(start: dt.datetime | None, seconds: int | None) -> dt.datetime | None:
    if start is None or seconds is None:
        return None
    try:
        return start + dt.timedelta(seconds=seconds)
    except OverflowError:
        # Thousands of years: as good as no limit.
        return None
