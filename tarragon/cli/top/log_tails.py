"""Streams the last log lines of the replicas that are visible on the page, and of no others."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing, suppress

from tarragon.base.clock import Clock
from tarragon.cli.jobview.log_book import ContainerRun
from tarragon.cli.jobview.log_listener import has_started
from tarragon.cli.output.log_lines import LineSplitter, terminal_text
from tarragon.client.errors import ApiError
from tarragon.client.port import Client, LogOptions
from tarragon.job.log_rendering import render_line
from tarragon.job.model import Replica
from tarragon.job.replica_state import main_container_status
from tarragon.kube.core import Pod

TAIL_LINES = 12
"""Lines kept for each replica; the newest one with numbers shows the training progress."""
MAX_STREAMS = 24
"""The most logs that are streamed at the same time."""
RETRY_SECONDS = 2.0
"""Seconds before a failed log request is repeated."""

LogSource = tuple[Replica, Pod, str]
"""A replica, its pod, and the name of the container that trains."""


class LogTails:
    """The last log lines of pods. Lines are kept after their stream has stopped."""

    def __init__(self, clock: Clock, changed: Callable[[], None]) -> None:
        self._clock = clock
        self._changed = changed
        self._lines: dict[str, deque[str]] = {}
        self._tasks: dict[ContainerRun, asyncio.Task[None]] = {}

    def lines(self, pod: Pod) -> Sequence[str]:
        return list(self._lines.get(pod.metadata.uid, ()))

    def follow(self, cluster: Client, speakers: Iterable[LogSource]) -> None:
        """Stream the logs of these replicas only, and stop all others. A terminated container's log is read once."""
        wanted: dict[ContainerRun, Pod] = {}
        for replica, pod, container in speakers:
            status = main_container_status(pod, container)
            if status is not None and has_started(status) and len(wanted) < MAX_STREAMS:
                wanted[ContainerRun(replica, pod.metadata.uid, status.name, status.restart_count)] = pod
        for instance in self._tasks.keys() - wanted.keys():
            self._tasks.pop(instance).cancel()
        for instance in wanted.keys() - self._tasks.keys():
            self._tasks[instance] = asyncio.create_task(self._stream(cluster, wanted[instance], instance))

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _stream(self, cluster: Client, pod: Pod, instance: ContainerRun) -> None:
        options = LogOptions(container=instance.container, follow=True, tail_lines=TAIL_LINES)
        with suppress(ApiError):
            lines = LineSplitter()
            tail: deque[str] = deque(maxlen=TAIL_LINES)
            async with aclosing(cluster.pod_log(pod.metadata.key, options)) as chunks:  # type: ignore[type-var]
                async for chunk in chunks:
                    for line in lines.feed(chunk):
                        tail.extend(terminal_text(part, colors=False) for part in render_line(line).split("\n"))
                    self._lines[instance.uid] = tail
                    self._changed()
            return
        # The request failed: forget the task, so that the next `follow` starts it again.
        await self._clock.sleep(RETRY_SECONDS)
        self._tasks.pop(instance, None)
