"""Streams the logs of a job's replicas, each container's from its beginning to its end."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace

from tarragon.base.clock import Clock
from tarragon.cli.jobview.log_book import ContainerRun, LogPositions
from tarragon.cli.output.log_lines import LineSplitter, split_stamp, stamp_time
from tarragon.client.errors import ApiError, NotFound, Unavailable, Unreachable, unreachable
from tarragon.client.port import Client, LogOptions
from tarragon.job.model import Replica
from tarragon.job.replica_state import sidecar_names
from tarragon.kube.core import ContainerStatus, Pod

DRAIN_TIMEOUT = 5.0
"""Seconds without a new line after which the rest of the logs is given up."""
RETRY_PAUSE = 0.3
MAX_FAILURES = 3
"""Failed attempts in a row after which the rest of a log is given up."""
CLOCK_SKEW = 60
"""Seconds by which a node's clock may be ahead of this machine's."""
WHOLE_LOG = LogOptions()

OnLines = Callable[[Replica, Sequence[tuple[str, str]]], None]
"""Called with new lines of one replica: pairs of timestamp and text."""


class LogStreamer:
    """Reads logs, continues after a broken connection, also with a new client, and reports no line twice.

    `beginning` limits how much of the existing logs is reported, by its `tail_lines` and `since_seconds`.
    """

    def __init__(self, main_container: str, clock: Clock, said: OnLines, beginning: LogOptions = WHOLE_LOG) -> None:
        self.positions = LogPositions()
        self._main_container = main_container
        self._clock = clock
        self._said = said
        self._beginning = beginning
        self._tasks: dict[ContainerRun, asyncio.Task[None]] = {}
        self._failures: dict[ContainerRun, int] = {}
        self._finished_previous: set[ContainerRun] = set()
        self._reported = 0
        self._is_wanted: Callable[[Replica], bool] = lambda _replica: True
        self._report_unread: Callable[[Replica, ApiError], None] = lambda _replica, _error: None
        self._report_unfinished: Callable[[Replica, str], None] = lambda _replica, _text: None
        self.error: BaseException | None = None
        """Why reading stopped: a BrokenPipeError, if the reader of our output closed the pipe, or a bug."""

    def on_unreadable(self, tell: Callable[[Replica, ApiError], None]) -> None:
        """Sets the callback for a log that can't be read. It may be called more than once."""
        self._report_unread = tell

    def on_unfinished(self, tell: Callable[[Replica, str], None]) -> None:
        """Sets the callback for the end of a line that is still being written, such as that of a bar."""
        self._report_unfinished = tell

    def select(self, wants: Callable[[Replica], bool]) -> None:
        """Reads the logs of these replicas only."""
        self._is_wanted = wants

    def start(self, cluster: Client, pods: Mapping[Replica, Pod], failed: Callable[[], None]) -> None:
        """Reads every container that has started since the last call. `failed` is called when `error` is set."""

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and task.exception() is not None:
                self.error = task.exception()
                failed()

        for replica, pod in pods.items():
            for instance in container_runs(replica, pod, self._main_container, self._beginning.container):
                if (
                    self._is_wanted(replica)
                    and instance not in self._tasks
                    and not self.positions.is_complete(instance)
                ):
                    task = self._tasks[instance] = asyncio.create_task(self._read(cluster, pod, instance))
                    task.add_done_callback(ended)

    async def drain(self, cluster: Client, pods: Mapping[Replica, Pod]) -> None:
        """Waits for everything that the containers have written until now.

        A followed log does not show whether more is to come: logs of running containers are read again, without
        following.
        """
        pending = {
            instance: task
            for instance, task in self._tasks.items()
            if not task.done() and not self._is_hopeless(instance)
        }
        for instance, task in pending.items():
            pod = pods.get(instance.replica)
            if pod is not None and not has_ended(pod, instance):
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                rest = asyncio.create_task(self._read(cluster, pod, instance, follow=False))
                self._tasks[instance] = pending[instance] = rest
        while unfinished := {instance: task for instance, task in pending.items() if not task.done()}:
            reported = self._reported
            await asyncio.wait(unfinished.values(), timeout=DRAIN_TIMEOUT)
            if self._reported == reported:
                break
        for instance, task in unfinished.items():
            if not task.done() and not self._is_hopeless(instance):
                self._report_unread(
                    instance.replica, unreachable(f"no more of it was received for {DRAIN_TIMEOUT:g} s")
                )

    def report_missed(self, instance: ContainerRun, lines: Sequence[str]) -> None:
        """Reports the lines of a log read elsewhere, with timestamps, that are still unreported. Oldest run first."""
        late = self.positions.missed_lines(instance, lines)
        if late:
            self._said(instance.replica, late)
        self.positions.start(instance)
        self._report(instance, lines)

    async def stop(self) -> None:
        """Closes the connections. The next `start` continues the logs that were not read to their ends."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, cluster: Client, pod: Pod, instance: ContainerRun, *, follow: bool = True) -> None:
        previous = instance.previous()
        if previous.number >= 0 and previous not in self._finished_previous:
            await self._finish_previous(cluster, pod, previous)
        while not await self._read_once(cluster, pod, instance, follow=follow):
            await self._clock.sleep(RETRY_PAUSE)
        if follow:
            self.positions.complete(instance)

    async def _finish_previous(self, cluster: Client, pod: Pod, previous: ContainerRun) -> None:
        """Reads the run before to its end first: after a line of the next run, its last lines would count as reported.

        A container that restarts during the request answers with the log of the next run.
        """
        reading, has_own_lines = self._tasks.get(previous), self._has_own_lines(pod, previous)
        if reading is not None:
            if not has_own_lines:
                reading.cancel()
            await asyncio.wait((reading,))
        if not self.positions.has_started(previous):
            await self._read_once(cluster, pod, previous, follow=False)
        elif not (has_own_lines and self.positions.is_complete(previous)):
            try:
                await self._read_previous(cluster, pod, previous)
            except Unavailable:
                return  # the next connection may succeed
            except ApiError:
                pass  # the log no longer exists
        self._finished_previous.add(previous)

    def _has_own_lines(self, pod: Pod, previous: ContainerRun) -> bool:
        """Whether the lines reported for the run are its own: they are older than the start of the next run."""
        status, first = container_status(pod, previous.container), self.positions.first_stamp(previous)
        current = None if status is None else status.state.running or status.state.terminated
        first_line = None if first is None else stamp_time(first)
        return (
            first_line is not None
            and current is not None
            and current.started_at is not None
            and first_line < current.started_at
        )

    async def _read_previous(self, cluster: Client, pod: Pod, previous: ContainerRun) -> None:
        options = LogOptions(
            container=previous.container, previous=True, timestamps=True, tail_lines=self._beginning.tail_lines
        )
        lines, whole = LineSplitter(), []
        async with aclosing(cluster.pod_log(pod.metadata.key, options)) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                whole += lines.feed(chunk)
        self.report_missed(previous, [*whole, *lines.finish()])

    async def _read_once(self, cluster: Client, pod: Pod, instance: ContainerRun, *, follow: bool) -> bool:
        """Reads the log once. Returns whether there is nothing more to read: it has ended, or no longer exists."""
        beginning = self._options_for(instance, follow=follow)
        self.positions.start(instance)
        status = container_status(pod, instance.container)
        is_previous = status is not None and status.restart_count > instance.number
        options = replace(
            beginning,
            container=instance.container,
            follow=follow and not is_previous,
            timestamps=True,
            previous=is_previous,
        )
        lines = LineSplitter()
        try:
            async with aclosing(cluster.pod_log(pod.metadata.key, options)) as chunks:  # type: ignore[type-var]
                async for chunk in chunks:
                    self._failures.pop(instance, None)
                    self._report(instance, lines.feed(chunk))
                    if rest := lines.unfinished:
                        self._report_unfinished(instance.replica, split_stamp(rest)[1])
        except Unreachable:
            # A truncated line is dropped: the next attempt reads all of it.
            return False
        except Unavailable as error:
            self._fail(instance, error)
            return False
        except ApiError as error:
            # The log of a pod that is deleted at its job's end is deleted with it.
            if follow or not isinstance(error, NotFound):
                self._report_unread(instance.replica, error)
            return True
        self._failures.pop(instance, None)
        self._report(instance, lines.finish())
        return True

    def _options_for(self, instance: ContainerRun, *, follow: bool) -> LogOptions:
        last = self.positions.last_stamp(instance)
        if last is None:
            is_first = not self.positions.has_started(instance)
            return self._beginning if is_first else LogOptions(tail_lines=self._beginning.tail_lines)
        last_line = stamp_time(last)
        if follow or last_line is None:
            return WHOLE_LOG
        age = (self._clock.now() - last_line).total_seconds()
        return LogOptions(since_seconds=max(0, math.ceil(age)) + CLOCK_SKEW)

    def _fail(self, instance: ContainerRun, error: Unavailable) -> None:
        """Counts failures. When the server fails repeatedly, the node or the connection to it is gone."""
        self._failures[instance] = self._failures.get(instance, 0) + 1
        if self._failures[instance] == MAX_FAILURES:
            self._report_unread(instance.replica, error)

    def _is_hopeless(self, instance: ContainerRun) -> bool:
        """Whether the log was given up, and that was reported."""
        return self._failures.get(instance, 0) >= MAX_FAILURES

    def _report(self, instance: ContainerRun, lines: Sequence[str]) -> None:
        new_lines = self.positions.new_lines(instance, lines)
        self._reported += len(new_lines)
        if new_lines:
            self._said(instance.replica, new_lines)


def container_runs(replica: Replica, pod: Pod, main_container: str, only: str = "") -> Iterator[ContainerRun]:
    """Yields the newest run of the main container and of each init container that has started, without sidecars.

    `only` names one container to use instead of these.
    """
    names = [container.name for container in pod.spec.containers]
    main = main_container if main_container in names else names[0] if names else ""
    beside = (sidecar_names(pod) | set(names)) - {main}
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        is_selected = status.name == only if only else status.name not in beside
        if is_selected and has_started(status):
            yield ContainerRun(replica, pod.metadata.uid, status.name, status.restart_count)


def has_started(status: ContainerStatus) -> bool:
    states = (status.state.running, status.state.terminated, status.last_state.terminated)
    return any(state is not None for state in states)


def has_ended(pod: Pod | None, instance: ContainerRun) -> bool:
    """Whether the run writes no more: its container has ended, or its pod was replaced."""
    if pod is None or pod.metadata.uid != instance.uid or pod.is_finished:
        return True
    status = container_status(pod, instance.container)
    return status is not None and (status.restart_count > instance.number or status.state.terminated is not None)


def container_status(pod: Pod, name: str) -> ContainerStatus | None:
    """Returns the status of a container or an init container."""
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    return next((status for status in statuses if status.name == name), None)
