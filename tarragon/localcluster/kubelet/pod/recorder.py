"""Records events about pods in the background, so that no container waits for the API."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Literal

from tarragon.base.clock import Clock
from tarragon.client.event_recorder import EventRecorder
from tarragon.client.port import Client
from tarragon.kube.event import Event, ObjectReference
from tarragon.localcluster.kubelet.base.spec import Pod

COMPONENT = "kubelet"
QUEUE_LENGTH = 1000
"""The length of the event queue; further events are dropped."""


class PodEventRecorder:
    def __init__(self, cluster: Client, clock: Clock) -> None:
        self._recorder = EventRecorder(cluster, clock, COMPONENT)
        self._queue: asyncio.Queue[Event] = asyncio.Queue(QUEUE_LENGTH)

    def record(self, pod: Pod, kind: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        regarding = ObjectReference(api_version="v1", kind="Pod", key=pod.metadata.key, uid=pod.metadata.uid)
        with contextlib.suppress(asyncio.QueueFull):
            self._queue.put_nowait(Event(involved_object=regarding, type=kind, reason=reason, message=message))

    async def run(self) -> None:
        """Write queued events until cancelled."""
        while True:
            event = await self._queue.get()
            await self._recorder.record(event)
            self._queue.task_done()

    async def flushed(self) -> None:
        """Return when all queued events have been written or dropped."""
        await self._queue.join()
