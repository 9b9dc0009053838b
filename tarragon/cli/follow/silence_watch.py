"""Notices that a followed job runs and prints nothing, and remembers what each replica has printed last. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from tarragon.cli.jobview.progress import RUNNING, STARTING, WAITING, Progress
from tarragon.cli.jobview.quiet_replicas import shown_line
from tarragon.cli.output.words import span, table
from tarragon.job.model import Replica

FIRST_NOTE = 60.0
"""Seconds without any output after which a line says so; the next ones follow after twice as long each."""
MOST_LINES = 50
"""Lines that are looked at of those that arrive at once, for the last one that is not blank."""
MOST_ROWS = 16


class SilenceWatch:
    """Notices when no replica prints. Times are seconds of the monotonic clock.

    A pause that has been as long before is that of the job, such as its epochs: only one of twice its length counts.
    """

    def __init__(self, now: float) -> None:
        self._since = now
        self._due = FIRST_NOTE
        self._longest = 0.0
        self._lines: dict[Replica, tuple[float, str]] = {}
        self._unreadable: set[Replica] = set()
        self._seen: object = None
        self._progress: Progress | None = None

    def printed(self, replica: Replica, lines: Sequence[str], now: float) -> None:
        """Takes note of new output, whole lines or the end of one that is still being written."""
        self._longest = max(self._longest, now - self._since)
        self._unreadable.discard(replica)
        self._lines[replica] = (now, shown_line(lines[-MOST_LINES:]) or self._lines.get(replica, (0.0, ""))[1])
        self._begin(now)

    def unreadable(self, replica: Replica) -> None:
        """Takes note that nobody sees what the replica prints, until something of it is seen."""
        self._unreadable.add(replica)

    def progressed(self, progress: Progress, now: float) -> None:
        """Takes note of a change: replicas that start or end, and reported progress, are no silence."""
        training = progress.training
        seen = progress.state, [member.state for member in progress.replicas], training and training.done
        self._progress = progress
        if seen != self._seen:
            self._seen = seen
            self._begin(now)

    def note(self, now: float, why: str) -> str:
        """Returns what to say now; usually empty. `why` is the command that says more."""
        if now - self._since < self._due or self._progress is None or self._progress.state != RUNNING:
            return ""
        if any(member.state == RUNNING and member.replica in self._unreadable for member in self._progress.replicas):
            return ""
        passed = span(dt.timedelta(seconds=now - self._since))
        self._due *= 2
        last = max(self._lines.items(), key=lambda item: item[1][0], default=None)
        words = "" if last is None or not last[1][1] else f"; the last line is of {last[0]}: {last[1][1]}"
        return f"no output for {passed}{words}; where it stands: `{why}`"

    def table(self, now: float) -> Sequence[str]:
        """Returns the state and the last line of each replica; nothing of a job that has not started."""
        members = self._progress.replicas if self._progress is not None else ()
        if all(member.state in {WAITING, STARTING} for member in members):
            return ()
        rows = [(member.name, member.state, *self._last(member.replica, now)) for member in members[:MOST_ROWS]]
        more = [f"and {len(members) - MOST_ROWS} more"] if len(members) > MOST_ROWS else []
        return [*table(("REPLICA", "STATE", "LAST OUTPUT", "LAST LINE"), rows), *more]

    def _last(self, replica: Replica, now: float) -> tuple[str, str]:
        if replica not in self._lines:
            return "-", "-"
        at, line = self._lines[replica]
        return f"{span(dt.timedelta(seconds=now - at))} ago", line or "-"

    def _begin(self, now: float) -> None:
        self._since = now
        self._due = max(FIRST_NOTE, 2 * self._longest)
