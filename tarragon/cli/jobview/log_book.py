"""How far the log of each container has been read, and the last lines and line counts of each replica."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tarragon.base.number_rows import extend_shortened
from tarragon.cli.output.log_lines import LogPosition, Stamp, split_stamp
from tarragon.job.log_rendering import render_line
from tarragon.job.model import Replica

_TAIL_LINES = 100


@dataclass(frozen=True, slots=True)
class ContainerRun:
    """One run of one container of a replica: a restart begins a new log. `number` is its restart count."""

    replica: Replica
    uid: str
    container: str
    number: int

    def previous(self) -> ContainerRun:
        return replace(self, number=self.number - 1)


class LogPositions:
    """Removes the lines that were already reported when a log is read again after a broken connection.

    Positions are kept by container, not by run: a container that restarts during the request answers with the log of
    the next run, which must not be reported twice either. Timestamps only grow from run to run.
    """

    def __init__(self) -> None:
        self._positions: dict[tuple[str, str], LogPosition] = {}
        self._first_stamps: dict[tuple[str, str], Stamp] = {}
        self._started: set[ContainerRun] = set()
        self._ranges: dict[ContainerRun, tuple[Stamp, Stamp]] = {}
        self._complete: set[ContainerRun] = set()
        self._caught_up: set[ContainerRun] = set()
        self.tails: dict[Replica, deque[str]] = {}
        self.line_counts: dict[Replica, int] = {}

    def start(self, instance: ContainerRun) -> None:
        """Call this before each reading of the run's log, the first and every later one."""
        self._started.add(instance)
        self._position(instance).resume()

    def has_started(self, instance: ContainerRun) -> bool:
        return instance in self._started

    def first_stamp(self, instance: ContainerRun) -> Stamp | None:
        """The timestamp of the first line reported for the run; None if there was none yet."""
        stamps = self._ranges.get(instance)
        return None if stamps is None else stamps[0]

    def last_stamp(self, instance: ContainerRun) -> Stamp | None:
        """The timestamp of the last line reported for the run; None if there was none yet."""
        stamps = self._ranges.get(instance)
        return None if stamps is None else stamps[1]

    def is_complete(self, instance: ContainerRun) -> bool:
        return instance in self._complete

    def complete(self, instance: ContainerRun) -> None:
        """Marks the run's log as read to its end."""
        self._complete.add(instance)

    def new_lines(self, instance: ContainerRun, lines: Sequence[str]) -> list[tuple[str, str]]:
        """Returns the lines that were not reported before, each with its timestamp as written."""
        position = self._position(instance)
        fresh = []
        for line in lines:
            stamp, text = split_stamp(line)
            if position.is_new(stamp):
                self._first_stamps.setdefault((instance.uid, instance.container), stamp)
                self._ranges[instance] = (self._ranges.get(instance, (stamp,))[0], stamp)
                fresh.append((line[: len(line) - len(text)].rstrip(), text))
        return self._record(instance, fresh)

    def missed_lines(self, instance: ContainerRun, lines: Sequence[str]) -> list[tuple[str, str]]:
        """Returns the lines of a run's whole log that are older than the first line reported of its container; once.

        A container that restarts during the request answers with the log of the next run, which is then reported first.
        """
        first = self._first_stamps.get((instance.uid, instance.container))
        if first is None or instance in self._caught_up:
            return []
        self._caught_up.add(instance)
        stamps = [(line, *split_stamp(line)) for line in lines]
        late = [(line[: len(line) - len(text)].rstrip(), text) for line, stamp, text in stamps if stamp < first]
        return self._record(instance, late)

    def _record(self, instance: ContainerRun, fresh: list[tuple[str, str]]) -> list[tuple[str, str]]:
        fresh = [(moment, part) for moment, text in fresh for part in render_line(text).split("\n")]
        tail = self.tails.setdefault(instance.replica, deque(maxlen=_TAIL_LINES))
        extend_shortened(tail, (text for _, text in fresh))  # an array must not displace the exception that shows it
        self.line_counts[instance.replica] = self.line_counts.get(instance.replica, 0) + len(fresh)
        return fresh

    def _position(self, instance: ContainerRun) -> LogPosition:
        return self._positions.setdefault((instance.uid, instance.container), LogPosition())
