"""Isolates unexpected errors: an error in one job, or in a status message, is logged once and stops no other job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from tarragon.client.errors import ApiError
from tarragon.client.leader_election import LeaseLost
from tarragon.operator.informers.candidates import JobId

APPLY_DECISION, REPORT_WAIT, WRITE_DECISION = "apply the decision", "report why it waits", "write the decision"
"""The last operations of a cycle: a job that fails in these is still part of the next snapshot. They are tracked
separately, because a job whose wait can be reported may still fail when a decision is applied."""

log = structlog.get_logger(__name__)


class JobErrors:
    """Failed operations by job."""

    def __init__(self) -> None:
        self._errors: dict[JobId, dict[str, str]] = {}
        self._shared_failures: set[str] = set()
        """Failed operations that concern all jobs."""

    @contextmanager
    def isolate_job(self, job: JobId, doing: str) -> Iterator[None]:
        """Catch and log any unexpected error inside; a repeated failure is logged again only after a success."""
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
            errors[doing] = f"{type(error).__name__}: {error}"
        else:
            self._clear(job, doing)

    @contextmanager
    def isolate(self, doing: str) -> Iterator[None]:
        """The same for an operation that concerns all jobs and that scheduling can do without."""
        try:
            yield
        except (ApiError, LeaseLost):
            raise
        except Exception:
            if doing not in self._shared_failures:
                log.exception("unexpected error in the scheduler", doing=doing)
            self._shared_failures.add(doing)
        else:
            self._shared_failures.discard(doing)

    def message(self, job: JobId) -> str | None:
        """The failed operations of a job with their errors, for people; None if there are none."""
        errors = self._errors.get(job)
        return None if not errors else "; ".join(f"{doing}: {error}" for doing, error in errors.items())

    def jobs(self) -> frozenset[JobId]:
        """Jobs with a failed operation."""
        return frozenset(self._errors)

    def unschedulable_jobs(self) -> frozenset[JobId]:
        """Jobs that cannot be scheduled because an operation that the decision depends on failed."""
        return frozenset(
            job for job, errors in self._errors.items() if errors.keys() - {APPLY_DECISION, REPORT_WAIT, WRITE_DECISION}
        )

    def forget(self, job: JobId) -> None:
        """The job was deleted or is no longer a candidate."""
        self._errors.pop(job, None)

    def _clear(self, job: JobId, doing: str) -> None:
        errors = self._errors.get(job)
        if errors is not None and errors.pop(doing, None) is not None and not errors:
            del self._errors[job]
