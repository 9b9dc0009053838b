"""Watches jobs for `tarragon list --watch`: redraws a table on a terminal, prints a row for every change elsewhere."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import click

from tarragon.base.clock import Clock, SystemClock
from tarragon.base.errors import TarragonError
from tarragon.cli.jobs.listing import Wanted, in_order
from tarragon.cli.jobview.jobs import Known, all_jobs, is_indispensable, known
from tarragon.cli.jobview.queueing import JobKey, key, positions
from tarragon.cli.jobview.rows import deleted, fitting, least
from tarragon.cli.jobview.target import Target
from tarragon.cli.options.formats import lines, show
from tarragon.cli.output.screen import Screen
from tarragon.cli.output.terminal import size
from tarragon.client.errors import ApiError, Forbidden, Unauthorized, Unavailable
from tarragon.client.informer.cache_reader import Recovery, Trouble
from tarragon.client.informer.reflector import Cache
from tarragon.client.port import Cluster, Selection
from tarragon.frameworks.catalog import FRAMEWORKS
from tarragon.frameworks.plugin import Framework
from tarragon.kube.meta import CustomObject, Key

TICK = 0.5
"""Seconds between two redraws; changes in between are drawn together."""


@dataclass(frozen=True, slots=True)
class Change:
    """A watch event of a job."""

    job: Known
    is_deletion: bool


News = Change | ApiError | Recovery


class Table(Protocol):
    """The output of a watch."""

    def change(self, change: Change) -> None: ...

    def tick(self) -> None:
        """Update ages; called every `TICK` seconds without changes."""
        ...


async def watch(wanted: Wanted, clock: Clock) -> None:
    """Watch until Ctrl-C. The end of the embedded cluster ends the watch, too."""
    changes: asyncio.Queue[News] = asyncio.Queue()
    contact = Contact(wanted.where)
    terminal = wanted.settings.terminal()
    async with wanted.where.watching() as cluster:
        # Fail now if the user may not list jobs or the kind is not installed: the caches would retry forever.
        await all_jobs(cluster, wanted.selection)
        tasks = [asyncio.create_task(_cache(cluster, each, wanted, changes).run()) for each in FRAMEWORKS]
        table = Moving(wanted, clock) if terminal.is_live and terminal.shows_logs else Plain(wanted, clock)
        try:
            while True:
                await _show_next_change(changes, table, contact)
        finally:
            for task in tasks:
                task.cancel()


async def _show_next_change(changes: asyncio.Queue[News], table: Table, contact: Contact) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(TICK):
            change = await changes.get()
            if isinstance(change, ApiError):
                contact.lost(change)
            elif isinstance(change, Recovery):
                contact.found()
            else:
                table.change(change)
            return
    table.tick()


class Plain:
    """Prints the header once, then a row for every change of a job, including its deletion."""

    def __init__(self, wanted: Wanted, clock: Clock) -> None:
        self._wanted = wanted
        self._clock = clock
        self._rows: dict[JobKey, Sequence[str]] = {}
        self._jobs: dict[JobKey, Known] = {}
        if wanted.has_header:
            show([least(wanted.header), wanted.header], wanted.settings, shown=1)

    def change(self, change: Change) -> None:
        header, job = self._wanted.header, change.job
        self._jobs[key(job)] = job
        cells = self._wanted.row(job, self._clock.now(), _queue(self._wanted, self._jobs))
        before = self._rows.pop(key(job), ())
        if change.is_deletion:
            del self._jobs[key(job)]
            show([least(header), deleted(cells, header)], self._wanted.settings, shown=1)
            return
        self._rows[key(job)] = cells
        # A job's queue position also changes when other jobs leave the queue, and its age always.
        ignored = {header.index("AGE"), header.index("QUEUE")}
        if _without(cells, ignored) != _without(before, ignored):
            show([least(header), cells], self._wanted.settings, shown=1)

    def tick(self) -> None:
        """Print nothing: rows are printed only when they change."""


class Moving:
    """Redraws the table in place, with as many rows as fit on the terminal."""

    def __init__(self, wanted: Wanted, clock: Clock) -> None:
        self._wanted = wanted
        self._clock = clock
        self._jobs: dict[JobKey, Known] = {}
        self._screen = Screen(sys.stdout, sys.stdout)
        self._drawn_at = -TICK

    def change(self, change: Change) -> None:
        if change.is_deletion:
            self._jobs.pop(key(change.job), None)
        else:
            self._jobs[key(change.job)] = change.job
        if self._clock.monotonic() - self._drawn_at >= TICK:
            self.tick()

    def tick(self) -> None:
        self._drawn_at = self._clock.monotonic()
        room = size(sys.stdout)
        queue, now = _queue(self._wanted, self._jobs), self._clock.now()
        jobs = in_order(self._jobs.values(), self._wanted.order, queue)
        rows = [self._wanted.header, *(self._wanted.row(job, now, queue) for job in jobs[: room.lines - 3])]
        drawn = lines(fitting(rows, room.columns), self._wanted.settings, room.columns - 1)
        if len(jobs) > room.lines - 3:
            drawn.append(f"and {len(jobs) - room.lines + 3} more; see `top`")
        self._screen.show(drawn if self._wanted.has_header else drawn[1:])


def _queue(wanted: Wanted, jobs: Mapping[JobKey, Known]) -> Mapping[JobKey, int]:
    """Return queue positions among the watched jobs; none with a selector, which hides other jobs of the queue."""
    return positions(jobs.values()) if wanted.selection == Selection(namespace=wanted.selection.namespace) else {}


def _without(cells: Sequence[str], places: set[int]) -> Sequence[str]:
    return [cell for place, cell in enumerate(cells) if place not in places]


class Contact:
    """Reports once when the cluster stops answering, and once when it answers again. The watch continues."""

    def __init__(self, where: Target) -> None:
        self._where = where
        self._is_lost = False

    def lost(self, error: ApiError) -> None:
        """Report the loss. Raises errors that do not recover by themselves."""
        if not isinstance(error, Unavailable):
            raise error
        if self._where.is_local:
            raise TarragonError("the local cluster stopped") from error
        if not self._is_lost:
            click.echo(f"{self._where.name} does not answer ({error.what}); retrying.", err=True)
        self._is_lost = True

    def found(self) -> None:
        if self._is_lost:
            click.echo(f"{self._where.name} answers again.", err=True)
        self._is_lost = False


def _cache(cluster: Cluster, framework: Framework, wanted: Wanted, changes: asyncio.Queue[News]) -> Cache[CustomObject]:
    cache = Cache(cluster, framework.resource, SystemClock(), wanted.selection, jitter=random.Random())

    def changed(_: Key, before: CustomObject | None, after: CustomObject | None) -> None:
        latest = after or before
        if latest is not None:
            changes.put_nowait(Change(known(framework, latest), is_deletion=after is None))

    def troubled(trouble: Trouble) -> None:
        is_optional_kind = isinstance(trouble.error, Forbidden) and not is_indispensable(framework.resource)
        if not is_optional_kind and isinstance(trouble.error, Unavailable | Unauthorized | Forbidden):
            changes.put_nowait(trouble.error)

    cache.subscribe(changed)
    cache.on_trouble(troubled)
    cache.on_recovery(changes.put_nowait)
    return cache
