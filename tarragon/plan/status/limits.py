"""The limits that a job sets itself: restarts, time to run, time to keep it after its end."""

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
    """One that was reached. All pods go then, whatever the clean-up policy: they would run on for nobody."""

    REASONS: ClassVar[frozenset[str]] = LIMITS

    reason: str
    message: str
    failures: Sequence[Replica] = ()


def reached(scene: Scene, status: JobStatus) -> Limit | None:
    return backoff(scene, status) or deadline(scene, status)


def backoff(scene: Scene, status: JobStatus) -> Limit | None:
    """As many restarts as the limit are too many already, as it has always been; disruptions never count."""
    limit = scene.job.run_policy.backoff_limit
    if limit is None:
        return None
    by_program = {replica: record.by_program for replica, record in status.restarts.items() if record.by_program}
    total = sum(by_program.values())
    if total < max(limit, 1):
        return None
    worst = sorted(by_program, key=lambda replica: (-by_program[replica], replica))
    times = f"{by_program[worst[0]]} times" if by_program[worst[0]] > 1 else "once"
    return Limit(
        reason=BACKOFF_LIMIT_EXCEEDED,
        message=f"{total} restarts reach the backoffLimit of {limit}; {worst[0]} was started again {times}",
        failures=worst,
    )


def deadline(scene: Scene, status: JobStatus) -> Limit | None:
    due = deadline_at(scene.job, status)
    if due is None or scene.now < due:
        return None
    seconds = scene.job.run_policy.active_deadline
    return Limit(reason=DEADLINE_EXCEEDED, message=f"it ran longer than its activeDeadlineSeconds of {seconds}")


def deadline_at(job: TrainingJob, status: JobStatus) -> dt.datetime | None:
    return _later(status.started, job.run_policy.active_deadline)


def expires_at(job: TrainingJob, status: JobStatus) -> dt.datetime | None:
    """When a finished job is to be deleted. Not all that others have ended has a completionTime."""
    ends = (condition for condition in status.conditions if condition.is_true and condition.type in FINAL)
    ended = status.completed or next((condition.changed for condition in ends), None)
    return _later(ended, job.run_policy.ttl_after_finished)


def _later(start: dt.datetime | None, seconds: int | None) -> dt.datetime | None:
    if start is None or seconds is None:
        return None
    try:
        return start + dt.timedelta(seconds=seconds)
    except OverflowError:
        # Some thousands of years: as good as no limit.
        return None
