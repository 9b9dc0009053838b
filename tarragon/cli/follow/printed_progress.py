"""How far a training is by the log that `run` shows: at once, and where no operator reads logs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace

from tarragon.cli.jobview.progress import RUNNING, Progress
from tarragon.job.log_progress import LogProgress
from tarragon.job.model import Replica
from tarragon.job.progress import Progress as TrainingProgress
from tarragon.job.progress import merge
from tarragon.job.work import JobWork, with_measured_remaining

MOST_LINES = 200
"""Lines that are read of those that arrive at once: a program that prints more says the same in its last ones."""


class PrintedProgress:
    """Reads the log of the replica that decides the job, `leader`, as the operator does."""

    def __init__(self, leader: Replica | None, nothing_read: LogProgress) -> None:
        self._leader = leader
        self._nothing_read = nothing_read
        self._log = nothing_read
        self._unfinished = ""
        self._read_at: dt.datetime | None = None
        self._run: tuple[str, int] | None = None
        self.has_news = False
        """Whether something was read since the last `applied_to`."""

    def read(self, replica: Replica, lines: Sequence[str], now: dt.datetime) -> None:
        """Reads new lines of a replica, in the order in which they were printed."""
        if replica == self._leader:
            self._log, self._unfinished = self._log.after(lines[-MOST_LINES:]), ""
            self._read_at, self.has_news = now, True

    def read_unfinished(self, replica: Replica, text: str, now: dt.datetime) -> None:
        """Reads the end of a line that is still being written."""
        if replica == self._leader:
            self._unfinished, self._read_at, self.has_news = text, now, True

    def applied_to(self, progress: Progress, work: JobWork) -> Progress:
        """Returns the job's progress, with what its log says of the training unless the program reports it itself."""
        self.has_news = False
        self._begin_run(progress)
        if self._read_at is None or not (progress.state == RUNNING or progress.is_final):
            return progress
        recorded = progress.training
        pod_uid = recorded.pod_uid if recorded is not None else ""
        log = self._log.after([self._unfinished], is_cut=True) if self._unfinished else self._log
        printed = log.progress(self._read_at, pod_uid)
        return replace(progress, training=_newest(recorded, printed, work))

    def _begin_run(self, progress: Progress) -> None:
        """Forgets the log of a container that was restarted, or replaced: the next one may begin anew."""
        found = next((each for each in progress.replicas if each.replica == self._leader), None)
        run = None if found is None or not found.pod else (found.pod, found.restarts)
        if self._run is not None and run != self._run:
            self._log, self._unfinished, self._read_at = self._nothing_read, "", None
        self._run = run


def _newest(
    recorded: TrainingProgress | None, printed: TrainingProgress | None, work: JobWork
) -> TrainingProgress | None:
    if printed is None:
        return recorded
    merged = merge(recorded, printed)
    return recorded if merged is None else with_measured_remaining(merged, work)
