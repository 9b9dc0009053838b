"""Which replicas of a running job have printed nothing for longer than they use to. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tarragon.cli.output.log_lines import last_state, terminal_text
from tarragon.cli.output.words import span
from tarragon.job.model import EndsAfterJob, Replica, ReplicaRole
from tarragon.job.tracebacks import short_line

DOCS = "tarragon docs howto/hangs"
MIN_SILENCE = 30.0
"""Seconds without output that are nothing special, whatever a program prints."""
PAUSES = 3.0
"""A silence is worth a line if it lasts as many times the longest pause between the last lines."""
MOST_NAMED = 5
_SHOWN = 100
"""Characters of a line that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaOutput:
    """What a running replica has printed. `at` is when it did last; with no `last_line`, when it started.

    `started` is when its run or, where that is not known, the job started. `longest_pause` is that between its last
    lines, in seconds; None if there are too few to tell. `pid` is its process on this machine, 0 elsewhere.
    """

    replica: Replica
    at: dt.datetime
    started: dt.datetime
    last_line: str = ""
    longest_pause: float | None = None
    pid: int = 0

    def silence(self, now: dt.datetime) -> float:
        return max(0.0, (now - self.at).total_seconds())

    @property
    def has_pace(self) -> bool:
        """Whether it printed on after its start, when also those print that leave the rest to others."""
        return self.longest_pause is not None and (self.at - self.started).total_seconds() > MIN_SILENCE

    def is_quiet(self, now: dt.datetime) -> bool:
        return self.silence(now) > max(MIN_SILENCE, PAUSES * (self.longest_pause or 0.0))


def longest_pause(times: Sequence[dt.datetime]) -> float | None:
    """Returns the longest time between two of these moments, in seconds; None for less than two."""
    pauses = [(later - earlier).total_seconds() for earlier, later in pairwise(times)]
    return max(pauses, default=None)


def prints_while_training(role: ReplicaRole | None) -> bool:
    """Whether such a replica should print: one that serves the others prints nothing after its start."""
    return role is None or role.ends_after_job is not EndsAfterJob.NEVER


def quiet_replicas(outputs: Iterable[ReplicaOutput], now: dt.datetime) -> Sequence[ReplicaOutput]:
    """Returns the quiet replicas, the longest silence first.

    While others print, a replica that printed nothing but at its start may be one that leaves that to them.
    """
    seen = list(outputs)
    quiet = [output for output in seen if output.is_quiet(now)]
    if len(quiet) < len(seen):
        quiet = [output for output in quiet if output.has_pace]
    return sorted(quiet, key=lambda output: (output.at, output.replica))


def silence_lines(quiet: Sequence[ReplicaOutput], now: dt.datetime) -> Iterator[str]:
    """Yields `worker-0 has printed nothing for 35s; its last line: step 3/10` of each, but of the first ones alone.

    On this machine with its process, as any of them may be the one for which the others wait.
    """
    for output in quiet[:MOST_NAMED]:
        passed = span(dt.timedelta(seconds=output.silence(now)))
        name = f"{output.replica} (process {output.pid})" if output.pid else str(output.replica)
        if output.last_line:
            yield f"{name} has printed nothing for {passed}; its last line: {output.last_line}"
        else:
            yield f"{name} has printed nothing since it started {passed} ago"
    if len(quiet) > MOST_NAMED:
        yield f"and {len(quiet) - MOST_NAMED} more have printed nothing for at least {_shortest(quiet, now)}"


def shown_line(lines: Iterable[str], length: int = _SHOWN) -> str:
    """Returns the last line that is not blank, safe for a terminal and shortened; empty without one."""
    for line in reversed([*lines]):
        if text := terminal_text(last_state(line), colors=False).strip():
            return short_line(text, length)
    return ""


def _shortest(quiet: Sequence[ReplicaOutput], now: dt.datetime) -> str:
    return span(dt.timedelta(seconds=min(output.silence(now) for output in quiet)))
