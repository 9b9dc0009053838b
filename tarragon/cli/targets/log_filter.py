"""Selects the log lines of `tarragon logs`, and prints them."""

from __future__ import annotations

import datetime as dt
import math
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from tarragon.base.escaping import write_verbatim
from tarragon.cli.jobview.jobs import NoSuchJob
from tarragon.cli.options.settings import GlobalOptions
from tarragon.cli.output.log_lines import Stamp, last_state, split_stamp, terminal_text
from tarragon.cli.output.style import REPLICA_TYPES, painter
from tarragon.cli.output.terminal import Sink, sink_of
from tarragon.cli.output.words import count, joined
from tarragon.cli.targets.stored_logs import LogLine
from tarragon.client.port import LogOptions
from tarragon.job.model import Replica
from tarragon.job.tracebacks import short_line
from tarragon.kube.codec import format_micro_time

_SHOWN = 40
"""Characters that are shown of an index that no replica has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """The replicas and lines to print, and their form. An empty collection selects all."""

    replicas: Collection[str] = ()
    types: Collection[str] = ()
    container: str = ""
    """The container to read, instead of the main container and the init containers."""
    tail: int | None = None
    since: dt.datetime | None = None
    previous: bool = False
    job_number: int | None = None
    """The number of the job among all jobs of that name, from 1; negative from the newest."""
    timestamps: bool = False
    prefix: bool = True
    grep: re.Pattern[str] | None = None

    def selects(self, replica: Replica) -> bool:
        is_named = not self.replicas or bool({str(replica), replica.type.lower()} & {*self.replicas})
        return is_named and (not self.types or replica.type.lower() in self.types)

    def among(self, replicas: Collection[Replica]) -> LogQuery:
        """Returns the query with names of replicas for bare numbers. Raises NoSuchJob if it is not clear which."""
        of_types = [each for each in replicas if not self.types or each.type.lower() in self.types]
        types = "" if not self.types else f" among those of type {joined(sorted(self.types))}"
        return replace(self, replicas=frozenset(_replica_name(each, of_types, types) for each in self.replicas))

    def matches(self, said: LogLine) -> bool:
        return self.grep is None or self.grep.search(said.text) is not None

    def log_options(self, now: dt.datetime) -> LogOptions:
        """Returns the options for the API server, which counts in whole seconds and may send more lines than wanted."""
        seconds = None if self.since is None else max(1, math.ceil((now - self.since).total_seconds()))
        return LogOptions(container=self.container, tail_lines=self.tail, since_seconds=seconds, previous=self.previous)


def _replica_name(given: str, replicas: Sequence[Replica], types: str) -> str:
    """Returns the name of the replica with that index, or `given` if it is no number. `types` says which are meant."""
    if not (given.isascii() and given.isdecimal()):
        return given
    index = given.lstrip("0") or "0"  # int() refuses thousands of digits
    found = sorted(str(each) for each in replicas if str(each.index) == index)
    if len(found) == 1:
        return found[0]
    if found:
        remedy = " or ".join(f"--replica {name}" for name in found)
        raise NoSuchJob(f"{count(len(found), 'replica')} have the index {given}", remedy=f"say which: {remedy}")
    names = joined(sorted(map(str, replicas)))
    raise NoSuchJob(
        f"no replica{types} has the index {short_line(given, _SHOWN)}", why=f"the replicas are {names}" if names else ""
    )


class LogPrinter:
    """Prints log lines on stdout: made safe on a terminal, else unchanged. Of bars, the last state, as `run` does."""

    def __init__(self, wanted: LogQuery, settings: GlobalOptions) -> None:
        terminal = settings.terminal()
        self._filter = wanted
        self._since: Stamp = ("", "") if wanted.since is None else split_stamp(format_micro_time(wanted.since))[0]
        self._colors = terminal.colors_out
        self._paint = painter(colors=terminal.colors_out)
        self._is_terminal = sink_of(sys.stdout) is Sink.TERMINAL

    def print_lines(self, replica: Replica, said: Sequence[tuple[str, str]]) -> None:
        if self._filter.selects(replica):
            self._print("".join(self._line(replica, moment, text) for moment, text in said))
            sys.stdout.flush()

    def print_stored(self, said: Iterator[LogLine]) -> None:
        for line in said:
            self._print(self._line(line.replica, line.timestamp, line.text))

    def _print(self, text: str) -> None:
        if self._is_terminal:
            sys.stdout.write(text)
        else:
            write_verbatim(sys.stdout, text)

    def _line(self, replica: Replica, moment: str, text: str) -> str:
        if split_stamp(moment)[0] < self._since:
            return ""
        if self._filter.grep is not None and not self._filter.grep.search(text):
            return ""
        words = [terminal_text(text, colors=self._colors) if self._is_terminal else last_state(text)]
        if self._filter.timestamps:
            words.insert(0, moment)
        if self._filter.prefix:
            words.insert(0, self._paint(f"[{replica}]", REPLICA_TYPES.get(replica.type.lower(), "")))
        return " ".join(words) + "\n"
