"""Exit codes of the commands that wait for a job. Scripts rely on these numbers."""

from __future__ import annotations

from tarragon.cli.jobview.progress import Progress
from tarragon.job.status import JobStatus

SUCCEEDED = 0
FAILED = 100
UNFINISHED = 101
DELETED = 103
EVICTED = 104
NEVER_FITS = 105
"""This machine can never run the job, whatever ends on it."""

_EVICTIONS = frozenset({"Evicted", "Preempted", "Preempting"})


def exit_code(progress: Progress, status: JobStatus, *, is_gone: bool) -> int:
    """Returns the exit code for a job. A job that is neither finished, suspended nor gone gives 101 (timeout)."""
    if progress.state == "Succeeded":
        return SUCCEEDED
    if progress.state == "Failed":
        failure = status.first_failure
        return EVICTED if failure is not None and failure.reason in _EVICTIONS else FAILED
    return DELETED if is_gone or progress.state == "Suspended" else UNFINISHED
