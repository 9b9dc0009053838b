"""Following one job on a cluster: its changes and its replicas' logs, until it has ended or is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass

from tarragon.base.clock import Clock
from tarragon.cli.follow.book import Instance, LogBook
from tarragon.cli.follow.lines import Lines
from tarragon.cli.follow.live import Live
from tarragon.cli.follow.progress import ENDING, Progress, newest, read
from tarragon.cli.jobs import Known, known, pods_of, sighting
from tarragon.cluster.errors import ApiError, Unavailable
from tarragon.cluster.port import Cluster, LogOptions
from tarragon.job.model import Replica
from tarragon.kube.core import ContainerStatus, Pod

LAST_WORDS = 5.0
"""Seconds that the logs of containers that have ended may take to arrive."""
LAST_STATES = 2.0
"""Seconds in which replicas that end with their job may still show their exit codes."""
LOG_PAUSE = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Ears:
    """Who is told what happens. Lines come with their timestamps."""

    progressed: Callable[[Progress], None]
    said: Callable[[Replica, Sequence[tuple[str, str]]], None]


class Follower:
    """Follows one job, across broken connections: what it has told once it does not tell again."""

    def __init__(self, job: Known, clock: Clock, ears: Ears) -> None:
        self.job = job
        self.progress: Progress | None = None
        self.is_gone = False
        self.book = LogBook()
        self._clock = clock
        self._ears = ears
        self._pods: dict[Replica, Pod] = {}
        self._reading: dict[Instance, asyncio.Task[None]] = {}

    async def follow(self, cluster: Cluster) -> None:
        """Return when the job is final, or gone. Raises Unavailable when the cluster is: call it again with another."""
        live = Live(cluster, self.job, self._clock)
        try:
            async with live.watching():
                await self._until_final(live)
                await self._last_words(live)
        finally:
            await self._stop_reading()

    async def _until_final(self, live: Live) -> None:
        while not self.is_gone and (self.progress is None or not self.progress.is_final):
            await live.changed()
            if live.trouble is not None:
                raise live.trouble
            self._look(live)
            self._listen(live)

    async def _last_words(self, live: Live) -> None:
        """Replicas that end together with their job have exit codes and last lines, too."""
        end = self._clock.monotonic() + LAST_STATES
        while self._is_settling and (left := end - self._clock.monotonic()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await live.changed()
            self._look(live)
        ended = [task for instance, task in self._reading.items() if self._has_ended(instance)]
        if ended:
            await asyncio.wait(ended, timeout=LAST_WORDS)

    @property
    def _is_settling(self) -> bool:
        return self.progress is not None and any(member.state == ENDING for member in self.progress.members)

    def _has_ended(self, instance: Instance) -> bool:
        pod = self._pods.get(instance.replica)
        if self.is_gone or pod is None or pod.metadata.uid != instance.uid or pod.is_finished:
            return True
        status = pod.container_status(instance.container)
        return status is not None and (status.restart_count > instance.number or status.state.terminated is not None)

    def _look(self, live: Live) -> None:
        found = live.job
        self.is_gone = found is None
        if found is not None:
            self.job = known(self.job.framework, found)
        present = newest(pods_of(self.job, live.pods))
        self._pods |= present
        gone = frozenset(pod.metadata.uid for replica, pod in self._pods.items() if replica not in present)
        progress = read(sighting(self.job, self._pods, gone))
        if progress != self.progress:
            self.progress = progress
            self._ears.progressed(progress)

    def _listen(self, live: Live) -> None:
        for replica, pod in self._pods.items():
            for instance in instances(replica, pod, self.job.main_container):
                if instance not in self._reading and not self.book.is_complete(instance):
                    self._reading[instance] = asyncio.create_task(self._read(live, pod, instance))

    async def _stop_reading(self) -> None:
        tasks = list(self._reading.values())
        self._reading.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, live: Live, pod: Pod, instance: Instance) -> None:
        """One container's log to its end, however often the connection breaks on the way."""
        before = instance.before()
        if before.number >= 0 and not self.book.has_begun(before):
            await self._read_once(live.cluster, pod, before)
        while not await self._read_once(live.cluster, pod, instance):
            if live.trouble is not None:
                return
            await self._clock.sleep(LOG_PAUSE)
        self.book.complete(instance)

    async def _read_once(self, cluster: Cluster, pod: Pod, instance: Instance) -> bool:
        """Whether there is nothing more to read: the log has come to its end, or is not kept any more."""
        self.book.begin(instance)
        status = pod.container_status(instance.container)
        is_previous = status is not None and status.restart_count > instance.number
        options = LogOptions(
            container=instance.container, follow=not is_previous, timestamps=True, previous=is_previous
        )
        lines = Lines()
        try:
            async with aclosing(cluster.pod_log(pod.metadata.key, options)) as chunks:  # type: ignore[type-var]
                async for chunk in chunks:
                    self._hear(instance, lines.feed(chunk))
        except Unavailable:
            return False
        except ApiError:
            return True
        self._hear(instance, lines.finish())
        return True

    def _hear(self, instance: Instance, lines: Sequence[str]) -> None:
        fresh = self.book.new(instance, lines)
        if fresh:
            self._ears.said(instance.replica, fresh)


def instances(replica: Replica, pod: Pod, main_container: str) -> Iterator[Instance]:
    """The newest run of the main container and of every init container, as far as they have begun. No sidecars."""
    statuses = [*pod.status.init_container_statuses, *pod.status.container_statuses]
    first = pod.spec.containers[0].name if pod.spec.containers else ""
    names = {container.name for container in pod.spec.containers}
    wanted = main_container if main_container in names else first
    for status in statuses:
        is_main = status.name == wanted
        if (is_main or status.name not in names) and _has_begun(status):
            yield Instance(replica, pod.metadata.uid, status.name, status.restart_count)


def _has_begun(status: ContainerStatus) -> bool:
    states = (status.state.running, status.state.terminated, status.last_state.terminated)
    return any(state is not None for state in states)
