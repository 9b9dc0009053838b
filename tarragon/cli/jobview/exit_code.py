"""The exit code that a job's end gives to the command that waited for it. Scripts rely on these numbers."""

from __future__ import annotations

from tarragon.cli.jobview.progress import Progress
from tarragon.job.status import JobStatus

SUCCEEDED = 0
FAILED = 100
UNFINISHED = 101
GONE = 103
EVICTED = 104

_EVICTIONS = frozenset({"Evicted", "Preempted", "Preempting"})


def exit_code(progress: Progress, status: JobStatus, *, is_gone: bool) -> int:
    """101 is for a time that ran out: a job that is neither final, suspended nor gone."""
    if progress.state == "Succeeded":
        return SUCCEEDED
    if progress.state == "Failed":
        failure = status.first_failure
        return EVICTED if failure is not None and failure.reason in _EVICTIONS else FAILED
    return GONE if is_gone or progress.state == "Suspended" else UNFINISHED
