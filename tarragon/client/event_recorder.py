"""Records Kubernetes events: the first occurrence creates the event, repetitions increment its count."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

import structlog

from tarragon.base.clock import Clock
from tarragon.client.errors import AlreadyExists, ApiError, NotFound
from tarragon.client.port import Client
from tarragon.kube.codec import format_time
from tarragon.kube.core import EVENTS
from tarragon.kube.event import Event, event_object
from tarragon.kube.meta import Json, Key

MAX_CACHED_COUNTS = 4096
"""Maximum number of events whose counts are cached; older counts are read from the API server."""

log = structlog.get_logger(__name__)


class EventRecorder:
    """Writes events of one component. A write that fails (no permission, a quota, a busy server) is dropped."""

    def __init__(self, cluster: Client, clock: Clock, component: str = "tarragon") -> None:
        self._cluster = cluster
        self._clock = clock
        self._component = component
        self._counts: OrderedDict[str, int] = OrderedDict()
        self._unwritten: dict[str, int] = {}
        """Occurrences of each event that is being written, which came meanwhile."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def record(self, event: Event) -> None:
        """Create the event, or increment its count. An event of a lasting state is never incremented.

        Returns at once while the same event is being written: that write's task counts this occurrence too. Two writes
        at the same time would both add to the same count.
        """
        if event.name in self._unwritten:
            self._unwritten[event.name] += 1
            return
        self._unwritten[event.name] = 1
        try:
            while occurrences := self._unwritten[event.name]:
                self._unwritten[event.name] = 0
                await self._write(event, occurrences)
        except ApiError as error:
            about = str(event.involved_object.key)
            log.debug("an event could not be written", reason=event.reason, about=about, error=str(error))
        finally:
            del self._unwritten[event.name]

    def record_later(self, event: Event) -> None:
        """Record the event without making the caller wait for it. `drain` waits for all of these."""
        task = asyncio.ensure_future(self.record(event))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def drain(self) -> None:
        """Wait for the events of `record_later` that are still being written. Raises LeaseLost if that prevents one."""
        await asyncio.gather(*self._tasks)

    async def _write(self, event: Event, occurrences: int) -> None:
        count = self._counts.get(event.name)
        if count is None:
            self._remember(event.name, await self._create(event, occurrences))
        elif not event.is_lasting_state:
            self._remember(event.name, await self._count(event, count, occurrences))

    async def _create(self, event: Event, occurrences: int) -> int:
        try:
            body = event_object(event, self._clock.now(), self._component)
            await self._cluster.create(EVENTS, {**body, "count": occurrences})
        except AlreadyExists:
            # An earlier process created it. The response to a patch has the count, so no read permission is needed.
            existing = await self._patch(event, {})
            count = int(existing.get("count") or 1)
            return count if event.is_lasting_state else await self._count(event, count, occurrences)
        return occurrences

    async def _count(self, event: Event, count: int, occurrences: int) -> int:
        try:
            await self._patch(event, {"count": count + occurrences})
        except NotFound:
            # The API server deletes events after an hour by default.
            return await self._create(event, occurrences)
        return count + occurrences

    async def _patch(self, event: Event, change: dict[str, int]) -> dict[str, Json]:
        key = Key(event.involved_object.key.namespace or "default", event.name)
        change_and_time = {**change, "lastTimestamp": format_time(self._clock.now())}
        return await self._cluster.patch(EVENTS.with_model(dict), key, change_and_time)

    def _remember(self, name: str, count: int) -> None:
        self._counts[name] = count
        self._counts.move_to_end(name)
        if len(self._counts) > MAX_CACHED_COUNTS:
            self._counts.popitem(last=False)
