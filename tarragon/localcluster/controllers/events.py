"""Records Events: creates each once, and increments its count when it repeats."""

from __future__ import annotations

from contextlib import suppress

from tarragon.base.clock import Clock
from tarragon.client.errors import AlreadyExists, ApiError
from tarragon.client.port import Cluster
from tarragon.kube.codec import timestamp
from tarragon.kube.core import EVENTS
from tarragon.kube.event import Event, body
from tarragon.kube.meta import Key


class Recorder:
    """Records events, best effort: an event that cannot be written is dropped."""

    def __init__(self, cluster: Cluster, clock: Clock, component: str) -> None:
        self._cluster = cluster
        self._clock = clock
        self._component = component

    async def tell(self, event: Event) -> None:
        now = self._clock.now()
        with suppress(ApiError):
            try:
                await self._cluster.create(EVENTS, body(event, now, self._component))
            except AlreadyExists:
                await self._count(event, timestamp(now))

    async def _count(self, event: Event, now: str) -> None:
        key = Key(event.about.key.namespace or "default", event.name)
        told = await self._cluster.get(EVENTS.reading(dict), key)
        await self._cluster.patch(EVENTS, key, {"count": int(told.get("count") or 1) + 1, "lastTimestamp": now})
