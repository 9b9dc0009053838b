"""Watches jobs for `tarragon list --watch`: redraws a table on a terminal, prints a row for every change elsewhere."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from tarragon.base.clock import Clock, SystemClock
from tarragon.base.errors import TarragonError
from tarragon.cli.jobs.listing import JobTable, sort_jobs
from tarragon.cli.jobview.jobs import ClusterJob, is_required, list_jobs, read_job
from tarragon.cli.jobview.queueing import JobKey, job_key, queue_positions
from tarragon.cli.jobview.rows import deleted_row, min_width_row
from tarragon.cli.jobview.target import ClusterTarget
from tarragon.cli.options.formats import print_table, table_lines
from tarragon.cli.options.notes import print_note
from tarragon.cli.output.screen import LiveRows
from tarragon.cli.output.terminal import size
from tarragon.client.errors import ApiError, Forbidden, Unauthorized, Unavailable
from tarragon.client.informer.cache_reader import CacheError, CacheRecovery
from tarragon.client.informer.informer import Informer
from tarragon.client.port import Client, Selector
from tarragon.frameworks.plugin import Framework
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.kube.meta import CustomObject, Key

REDRAW_SECONDS = 0.5
"""Seconds between two redraws; changes in between are drawn together."""


@dataclass(frozen=True, slots=True)
class JobEvent:
    """A watch event of a job."""

    job: ClusterJob
    is_deletion: bool


WatchUpdate = JobEvent | ApiError | CacheRecovery


class WatchOutput(Protocol):
    """The output of a watch."""

    def change(self, change: JobEvent) -> None: ...

    def tick(self) -> None:
        """Update ages; called every `REDRAW_SECONDS` seconds without changes."""
        ...


async def watch_jobs(wanted: JobTable, clock: Clock) -> None:
    """Watch until Ctrl-C. The end of the embedded cluster ends the watch, too."""
    changes: asyncio.Queue[WatchUpdate] = asyncio.Queue()
    contact = ConnectionMonitor(wanted.target)
    terminal = wanted.settings.terminal()
    async with wanted.target.watching() as cluster:
        # Fail now if the user may not list jobs or the kind is not installed: the caches would retry forever.
        jobs = await list_jobs(cluster, wanted.selection)
        tasks = [asyncio.create_task(_cache(cluster, each, wanted, changes).run()) for each in FRAMEWORKS]
        table = (
            RedrawnTable(wanted, clock)
            if terminal.is_live and terminal.shows_logs
            else AppendingTable(wanted.naming_kinds_of(jobs), clock)
        )
        try:
            while True:
                await _show_next_change(changes, table, contact)
        finally:
            for task in tasks:
                task.cancel()


async def _show_next_change(
    changes: asyncio.Queue[WatchUpdate], table: WatchOutput, contact: ConnectionMonitor
) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(REDRAW_SECONDS):
            change = await changes.get()
            if isinstance(change, ApiError):
                contact.lost(change)
            elif isinstance(change, CacheRecovery):
                contact.recovered()
            else:
                table.change(change)
            return
    table.tick()


class AppendingTable:
    """Prints the header once, then a row for every change of a job, including its deletion."""

    def __init__(self, wanted: JobTable, clock: Clock) -> None:
        self._wanted = wanted
        self._clock = clock
        self._rows: dict[JobKey, Sequence[str]] = {}
        self._jobs: dict[JobKey, ClusterJob] = {}
        if wanted.has_header:
            print_table([min_width_row(wanted.header), wanted.header], wanted.settings, shown=1)

    def change(self, change: JobEvent) -> None:
        header, job = self._wanted.header, change.job
        self._jobs[job_key(job)] = job
        cells = self._wanted.row(job, self._clock.now(), _queue(self._wanted, self._jobs))
        before = self._rows.pop(job_key(job), ())
        if change.is_deletion:
            del self._jobs[job_key(job)]
        if not self._wanted.shows(job) and not before:
            return
        if change.is_deletion:
            print_table([min_width_row(header), deleted_row(cells, header)], self._wanted.settings, shown=1)
            return
        if self._wanted.shows(job):
            self._rows[job_key(job)] = cells
        # A job's queue position also changes when other jobs leave the queue, and its age always.
        ignored = {header.index(column) for column in ("AGE", "DURATION", "QUEUE")}
        if _without(cells, ignored) != _without(before, ignored):
            print_table([min_width_row(header), cells], self._wanted.settings, shown=1)

    def tick(self) -> None:
        """Print nothing: rows are printed only when they change."""


class RedrawnTable:
    """Redraws the table in place, with as many rows as fit on the terminal."""

    def __init__(self, wanted: JobTable, clock: Clock) -> None:
        self._wanted = wanted
        self._clock = clock
        self._jobs: dict[JobKey, ClusterJob] = {}
        self._screen = LiveRows(sys.stdout, sys.stdout)
        self._drawn_at = -REDRAW_SECONDS

    def change(self, change: JobEvent) -> None:
        if change.is_deletion:
            self._jobs.pop(job_key(change.job), None)
        else:
            self._jobs[job_key(change.job)] = change.job
        if self._clock.monotonic() - self._drawn_at >= REDRAW_SECONDS:
            self.tick()

    def tick(self) -> None:
        self._drawn_at = self._clock.monotonic()
        room = size(sys.stdout)
        queue, now = _queue(self._wanted, self._jobs), self._clock.now()
        jobs = sort_jobs(filter(self._wanted.shows, self._jobs.values()), self._wanted.order, queue)
        table = self._wanted.naming_kinds_of(jobs)
        rows = [table.header, *(table.row(job, now, queue) for job in jobs[: room.lines - 3])]
        drawn = table_lines(table.fitted(rows, room.columns), self._wanted.settings, room.columns - 1)
        if len(jobs) > room.lines - 3:
            drawn.append(f"and {len(jobs) - room.lines + 3} more; see `top`")
        self._screen.show(drawn if self._wanted.has_header else drawn[1:])


def _queue(wanted: JobTable, jobs: Mapping[JobKey, ClusterJob]) -> Mapping[JobKey, int]:
    """Return queue positions among the watched jobs; none with a selector, which hides other jobs of the queue."""
    return queue_positions(jobs.values()) if wanted.selection == Selector(namespace=wanted.selection.namespace) else {}


def _without(cells: Sequence[str], places: set[int]) -> Sequence[str]:
    return [cell for place, cell in enumerate(cells) if place not in places]


class ConnectionMonitor:
    """Reports once when the cluster stops answering, and once when it answers again. The watch continues."""

    def __init__(self, target: ClusterTarget) -> None:
        self._where = target
        self._is_lost = False

    def lost(self, error: ApiError) -> None:
        """Report the loss. Raises errors that do not recover by themselves."""
        if not isinstance(error, Unavailable):
            raise error
        if self._where.is_local:
            raise TarragonError("the local cluster stopped") from error
        if not self._is_lost:
            print_note(f"{self._where.name} does not answer ({error.summary}); retrying.")
        self._is_lost = True

    def recovered(self) -> None:
        if self._is_lost:
            print_note(f"{self._where.name} answers again.")
        self._is_lost = False


def _cache(
    cluster: Client, framework: Framework, wanted: JobTable, changes: asyncio.Queue[WatchUpdate]
) -> Informer[CustomObject]:
    cache = Informer(cluster, framework.resource, SystemClock(), wanted.selection, jitter=random.Random())

    def changed(_: Key, before: CustomObject | None, after: CustomObject | None) -> None:
        latest = after or before
        if latest is not None:
            changes.put_nowait(JobEvent(read_job(framework, latest), is_deletion=after is None))

    def troubled(trouble: CacheError) -> None:
        is_optional_kind = isinstance(trouble.error, Forbidden) and not is_required(framework.resource)
        if not is_optional_kind and isinstance(trouble.error, Unavailable | Unauthorized | Forbidden):
            changes.put_nowait(trouble.error)

    cache.add_event_handler(changed)
    cache.on_error(troubled)
    cache.on_recovery(changes.put_nowait)
    return cache
