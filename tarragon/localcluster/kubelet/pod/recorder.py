"""Records events about pods in the background; events that cannot be written are dropped."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Literal

import structlog

from tarragon.base.clock import Clock
from tarragon.client.errors import AlreadyExists, ApiError
from tarragon.client.port import Cluster
from tarragon.kube.codec import timestamp
from tarragon.kube.core import EVENTS
from tarragon.kube.event import Event, ObjectReference, body
from tarragon.kube.meta import Key
from tarragon.localcluster.kubelet.base.spec import Pod

COMPONENT = "kubelet"
WAITING = 1000
"""The length of the event queue; further events are dropped."""

_log = structlog.get_logger()


class Recorder:
    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._queue: asyncio.Queue[Event] = asyncio.Queue(WAITING)

    def tell(self, pod: Pod, kind: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        regarding = ObjectReference(api_version="v1", kind="Pod", key=pod.metadata.key, uid=pod.metadata.uid)
        with contextlib.suppress(asyncio.QueueFull):
            self._queue.put_nowait(Event(about=regarding, type=kind, reason=reason, message=message))

    async def run(self) -> None:
        """Write queued events until cancelled."""
        while True:
            event = await self._queue.get()
            try:
                await self._write(event)
            except ApiError as error:
                _log.info(
                    "an event could not be written", reason=event.reason, about=str(event.about.key), error=str(error)
                )
            self._queue.task_done()

    async def told(self) -> None:
        """Return when all queued events have been written or dropped."""
        await self._queue.join()

    async def _write(self, event: Event) -> None:
        now = self._clock.now()
        try:
            await self._cluster.create(EVENTS, body(event, now, COMPONENT))
        except AlreadyExists:
            key = Key(event.about.key.namespace or "default", event.name)
            stored = await self._cluster.get(EVENTS.reading(dict), key)
            changes = {"count": int(stored.get("count") or 1) + 1, "lastTimestamp": timestamp(now)}
            await self._cluster.patch(EVENTS, key, changes)
