"""Records Events: creates each once, and increments its count when it repeats."""

from __future__ import annotations

from contextlib import suppress

from tarragon.base.clock import Clock
from tarragon.client.errors import AlreadyExists, ApiError
from tarragon.client.port import Client
from tarragon.kube.codec import format_time
from tarragon.kube.core import EVENTS
from tarragon.kube.event import Event, event_object
from tarragon.kube.meta import Key


class Recorder:
    """Records events, best effort: an event that cannot be written is dropped."""

    def __init__(self, cluster: Client, clock: Clock, component: str) -> None:
        self._cluster = cluster
        self._clock = clock
        self._component = component

    async def record(self, event: Event) -> None:
        now = self._clock.now()
        with suppress(ApiError):
            try:
                await self._cluster.create(EVENTS, event_object(event, now, self._component))
            except AlreadyExists:
                await self._count(event, format_time(now))

    async def _count(self, event: Event, now: str) -> None:
        key = Key(event.involved_object.key.namespace or "default", event.name)
        told = await self._cluster.get(EVENTS.with_model(dict), key)
        await self._cluster.patch(EVENTS, key, {"count": int(told.get("count") or 1) + 1, "lastTimestamp": now})
