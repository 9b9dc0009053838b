"""Records events about pods in the background; events that cannot be written are dropped."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Literal

import structlog

from tarragon.base.clock import Clock
from tarragon.client.errors import AlreadyExists, ApiError
from tarragon.client.port import Client
from tarragon.kube.codec import format_time
from tarragon.kube.core import EVENTS
from tarragon.kube.event import Event, ObjectReference, event_object
from tarragon.kube.meta import Key
from tarragon.localcluster.kubelet.base.spec import Pod

COMPONENT = "kubelet"
QUEUE_LENGTH = 1000
"""The length of the event queue; further events are dropped."""

_log = structlog.get_logger()


class PodEventRecorder:
    def __init__(self, cluster: Client, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._queue: asyncio.Queue[Event] = asyncio.Queue(QUEUE_LENGTH)

    def record(self, pod: Pod, kind: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        regarding = ObjectReference(api_version="v1", kind="Pod", key=pod.metadata.key, uid=pod.metadata.uid)
        with contextlib.suppress(asyncio.QueueFull):
            self._queue.put_nowait(Event(involved_object=regarding, type=kind, reason=reason, message=message))

    async def run(self) -> None:
        """Write queued events until cancelled."""
        while True:
            event = await self._queue.get()
            try:
                await self._write(event)
            except ApiError as error:
                _log.info(
                    "an event could not be written",
                    reason=event.reason,
                    about=str(event.involved_object.key),
                    error=str(error),
                )
            self._queue.task_done()

    async def flushed(self) -> None:
        """Return when all queued events have been written or dropped."""
        await self._queue.join()

    async def _write(self, event: Event) -> None:
        now = self._clock.now()
        try:
            await self._cluster.create(EVENTS, event_object(event, now, COMPONENT))
        except AlreadyExists:
            key = Key(event.involved_object.key.namespace or "default", event.name)
            stored = await self._cluster.get(EVENTS.with_model(dict), key)
            changes = {"count": int(stored.get("count") or 1) + 1, "lastTimestamp": format_time(now)}
            await self._cluster.patch(EVENTS, key, changes)
