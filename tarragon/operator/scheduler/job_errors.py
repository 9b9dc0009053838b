"""Sets a job aside on which a step of the scheduler raises: the error is logged once, and the other jobs go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from tarragon.client.errors import ApiError
from tarragon.client.leader_election import LeaseLost
from tarragon.operator.informers.candidates import JobId
from tarragon.scheduling.api.decision import SCHEDULER_ERROR, Defer

APPLY_DECISION, REPORT_WAIT, WRITE_DECISION = "apply the decision", "report why it waits", "write the decision"
"""The last steps of a cycle: a job that fails in these is still part of the next snapshot, so that they are retried."""

log = structlog.get_logger(__name__)


class JobErrors:
    """The errors of each job by step. An error ends when its step succeeds, or with the job."""

    def __init__(self) -> None:
        self._errors: dict[JobId, dict[str, str]] = {}

    @contextmanager
    def isolate(self, job: JobId, doing: str) -> Iterator[None]:
        """Catch an unexpected error in a step about one job."""
        try:
            yield
        except (ApiError, LeaseLost):
            raise  # These are not caused by the job.
        except Exception as error:
            errors = self._errors.setdefault(job, {})
            if doing not in errors:
                kind, key = job
                log.exception(
                    "unexpected error in the scheduler", kind=kind, namespace=key.namespace, job=key.name, doing=doing
                )
            errors[doing] = error_text(error)
        else:
            errors = self._errors.get(job, {})
            if errors.pop(doing, None) is not None and not errors:
                self.forget(job)

    def message(self, job: JobId) -> str:
        """The failed steps of a job with their errors, for people."""
        return "; ".join(f"could not {doing}: {error}" for doing, error in self._errors[job].items())

    def jobs(self) -> frozenset[JobId]:
        """Jobs with a failed step."""
        return frozenset(self._errors)

    def unschedulable_jobs(self) -> frozenset[JobId]:
        """Jobs that cannot be scheduled because a step failed on which the decision depends."""
        last = {APPLY_DECISION, REPORT_WAIT, WRITE_DECISION}
        return frozenset(job for job, errors in self._errors.items() if errors.keys() - last)

    def forget(self, job: JobId) -> None:
        """The job was deleted or is no longer a candidate."""
        self._errors.pop(job, None)


def error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def defer_failed_job(gang: str, why: str) -> Defer:
    return Defer(gang, SCHEDULER_ERROR, f"the scheduler failed on this job and continues without it: {why}")
