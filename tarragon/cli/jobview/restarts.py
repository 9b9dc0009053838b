"""The restarts that a job's status records: how the run before each of them ended."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping

from tarragon.cli.jobview.exits import past_end_text
from tarragon.cli.output.words import age
from tarragon.job.model import Replica
from tarragon.job.status import FirstFailure, JobStatus, RestartRecord

_MOST_LINES = 5
_LONGEST_WAIT = dt.timedelta(minutes=5)
"""For how long a program waits for another one that has gone, before it fails, too."""
_PRECISION = dt.timedelta(seconds=1)
"""Of times in a status, which has whole seconds."""


def restart_lines(status: JobStatus, now: dt.datetime) -> Iterator[str]:
    """Yields `worker-0 was restarted 30s ago, as it failed with exit code 1`, the last restarts first."""
    known = ((replica, record, _time(record)) for replica, record in status.restarts.items())
    told = [
        (at, replica, text) for replica, record, at in known if at is not None and (text := end_of_last_run(record))
    ]
    for at, replica, text in sorted(told, key=lambda each: (-each[0].timestamp(), each[1]))[:_MOST_LINES]:
        yield f"{replica} was restarted {age(at, now)} ago, as it {text}"


def end_of_last_run(record: RestartRecord) -> str:
    """`failed with exit code 1`; empty if there was no restart, or it is not known how the run before ended.

    A pod that a kubelet rejected has not run.
    """
    if not record.total or record.rejections:
        return ""
    return past_end_text(record.exit_code, record.reason)


def earlier_end(failure: FirstFailure, restarts: Mapping[Replica, RestartRecord]) -> str:
    """Names the replica that ended shortly before the job's failure, and was restarted; empty if there is none."""
    ends = [
        (at, replica, record)
        for replica, record in restarts.items()
        if replica != failure.replica
        and (at := _time(record)) is not None
        and failure.at - _LONGEST_WAIT <= at <= failure.at + _PRECISION
        and end_of_last_run(record)
    ]
    if not ends:
        return ""
    _, replica, record = min(ends, key=lambda each: each[:2])
    return f"{replica} ended first: it {end_of_last_run(record)}, and was restarted"


def _time(record: RestartRecord) -> dt.datetime | None:
    return record.finished_at or record.ended_at
