"""Reading the logs of a job's replicas as they come, each container's from its beginning to its end."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace

from tarragon.base.clock import Clock
from tarragon.cli.jobview.log_book import Instance, LogBook
from tarragon.cli.output.log_lines import Lines, moment
from tarragon.client.errors import ApiError, NotFound, Unavailable, Unreachable, unreachable
from tarragon.client.port import Cluster, LogOptions
from tarragon.job.model import Replica
from tarragon.kube.core import ContainerStatus, Pod

LAST_WORDS = 5.0
"""Seconds without a word after which nobody waits for the rest of the logs any more."""
PAUSE = 0.3
HOPELESS = 3
"""Answers that a log can't be had, one after the other, after which nobody waits for its last words."""
SKEW = 60
"""Seconds by which the clock of a node may be ahead of ours."""
ALL = LogOptions()

Said = Callable[[Replica, Sequence[tuple[str, str]]], None]
"""New lines of one replica, each with its timestamp."""


class Listener:
    """Reads on after a broken connection, from a new one too, and tells no line twice.

    `beginning` says how much of a log that is there already is told: its `tail_lines` and `since_seconds`.
    """

    def __init__(self, main_container: str, clock: Clock, said: Said, beginning: LogOptions = ALL) -> None:
        self.book = LogBook()
        self._main_container = main_container
        self._clock = clock
        self._said = said
        self._beginning = beginning
        self._tasks: dict[Instance, asyncio.Task[None]] = {}
        self._failures: dict[Instance, int] = {}
        self._settled: set[Instance] = set()
        self._told = 0
        self._wants: Callable[[Replica], bool] = lambda _replica: True
        self._unread: Callable[[Replica, ApiError], None] = lambda _replica, _error: None
        self.error: BaseException | None = None
        """Why nobody can be told any more: whoever reads our output has gone, or we have a bug."""

    def on_unread(self, tell: Callable[[Replica, ApiError], None]) -> None:
        """Call it when a log that should be there is refused. May come more than once."""
        self._unread = tell

    def only(self, wants: Callable[[Replica], bool]) -> None:
        """Nobody else's log is asked for."""
        self._wants = wants

    def listen(self, cluster: Cluster, pods: Mapping[Replica, Pod], failed: Callable[[], None]) -> None:
        """Begin with every container that has begun since the last call; `failed` is called when `error` is set."""

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and task.exception() is not None:
                self.error = task.exception()
                failed()

        for replica, pod in pods.items():
            for instance in instances(replica, pod, self._main_container, self._beginning.container):
                if self._wants(replica) and instance not in self._tasks and not self.book.is_complete(instance):
                    task = self._tasks[instance] = asyncio.create_task(self._read(cluster, pod, instance))
                    task.add_done_callback(ended)

    async def last_words(self, cluster: Cluster, pods: Mapping[Replica, Pod]) -> None:
        """Wait for the rest of what has been said until now, by containers that have ended and by those that have not.

        Whether the latter have said more than we have heard, a log that goes on does not tell: they are asked anew.
        """
        waited = {
            instance: task
            for instance, task in self._tasks.items()
            if not task.done() and not self._is_hopeless(instance)
        }
        for instance, task in waited.items():
            pod = pods.get(instance.replica)
            if pod is not None and not has_ended(pod, instance):
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                rest = asyncio.create_task(self._read(cluster, pod, instance, follow=False))
                self._tasks[instance] = waited[instance] = rest
        while left := {instance: task for instance, task in waited.items() if not task.done()}:
            told = self._told
            await asyncio.wait(left.values(), timeout=LAST_WORDS)
            if self._told == told:
                break
        for instance, task in left.items():
            if not task.done() and not self._is_hopeless(instance):
                self._unread(instance.replica, unreachable(f"the rest of it has not come for {LAST_WORDS:g} s"))

    def catch_up(self, instance: Instance, lines: Sequence[str]) -> None:
        """Tell what has not been told yet of a log that was read elsewhere, with its timestamps. Oldest run first."""
        late = self.book.overtaken(instance, lines)
        if late:
            self._said(instance.replica, late)
        self.book.begin(instance)
        self._hear(instance, lines)

    async def stop(self) -> None:
        """Let go of the connections. What was not read to its end is read again by the next `listen`."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, cluster: Cluster, pod: Pod, instance: Instance, *, follow: bool = True) -> None:
        before = instance.before()
        if before.number >= 0 and before not in self._settled:
            await self._settle(cluster, pod, before)
        while not await self._read_once(cluster, pod, instance, follow=follow):
            await self._clock.sleep(PAUSE)
        if follow:
            self.book.complete(instance)

    async def _settle(self, cluster: Cluster, pod: Pod, before: Instance) -> None:
        """All of the run before, first: behind the next one's first line its last words would count as told already.

        A container that restarts just when it is asked for its log answers with the next run.
        """
        reading, is_its_own = self._tasks.get(before), self._is_its_own(pod, before)
        if reading is not None:
            if not is_its_own:
                reading.cancel()
            await asyncio.wait((reading,))
        if not self.book.has_begun(before):
            await self._read_once(cluster, pod, before, follow=False)
        elif not (is_its_own and self.book.is_complete(before)):
            try:
                await self._read_whole(cluster, pod, before)
            except Unavailable:
                return  # the next connection may bring it
            except ApiError:
                pass  # nobody has it any more
        self._settled.add(before)

    def _is_its_own(self, pod: Pod, before: Instance) -> bool:
        """Whether what was heard for a run was said before the next one began, and so by nobody else."""
        status, first = container_status(pod, before.container), self.book.first_heard(before)
        present = None if status is None else status.state.running or status.state.terminated
        said = None if first is None else moment(first)
        return said is not None and present is not None and present.started_at is not None and said < present.started_at

    async def _read_whole(self, cluster: Cluster, pod: Pod, before: Instance) -> None:
        asked = LogOptions(
            container=before.container, previous=True, timestamps=True, tail_lines=self._beginning.tail_lines
        )
        lines, said = Lines(), []
        async with aclosing(cluster.pod_log(pod.metadata.key, asked)) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                said += lines.feed(chunk)
        self.catch_up(before, [*said, *lines.finish()])

    async def _read_once(self, cluster: Cluster, pod: Pod, instance: Instance, *, follow: bool) -> bool:
        """Whether there is nothing more to read: the log has come to its end, or is not kept any more."""
        beginning = self._beginning_of(instance, follow=follow)
        self.book.begin(instance)
        status = container_status(pod, instance.container)
        is_previous = status is not None and status.restart_count > instance.number
        options = replace(
            beginning,
            container=instance.container,
            follow=follow and not is_previous,
            timestamps=True,
            previous=is_previous,
        )
        lines = Lines()
        try:
            async with aclosing(cluster.pod_log(pod.metadata.key, options)) as chunks:  # type: ignore[type-var]
                async for chunk in chunks:
                    self._failures.pop(instance, None)
                    self._hear(instance, lines.feed(chunk))
        except Unreachable:
            # A line that was cut off is dropped: it comes again, whole.
            return False
        except Unavailable as error:
            self._fail(instance, error)
            return False
        except ApiError as error:
            # A pod that is gone at the end of its job has taken its log along.
            if follow or not isinstance(error, NotFound):
                self._unread(instance.replica, error)
            return True
        self._failures.pop(instance, None)
        self._hear(instance, lines.finish())
        return True

    def _beginning_of(self, instance: Instance, *, follow: bool) -> LogOptions:
        last = self.book.last_heard(instance)
        if last is None:
            is_first = not self.book.has_begun(instance)
            return self._beginning if is_first else LogOptions(tail_lines=self._beginning.tail_lines)
        said = moment(last)
        if follow or said is None:
            return ALL
        age = (self._clock.now() - said).total_seconds()
        return LogOptions(since_seconds=max(0, math.ceil(age)) + SKEW)

    def _fail(self, instance: Instance, error: Unavailable) -> None:
        """A server that answers so again and again has nobody to ask: the node, or the way to it, is gone."""
        self._failures[instance] = self._failures.get(instance, 0) + 1
        if self._failures[instance] == HOPELESS:
            self._unread(instance.replica, error)

    def _is_hopeless(self, instance: Instance) -> bool:
        """And that was told."""
        return self._failures.get(instance, 0) >= HOPELESS

    def _hear(self, instance: Instance, lines: Sequence[str]) -> None:
        fresh = self.book.new(instance, lines)
        self._told += len(fresh)
        if fresh:
            self._said(instance.replica, fresh)


def instances(replica: Replica, pod: Pod, main_container: str, only: str = "") -> Iterator[Instance]:
    """The newest run of the main container and of every init container, as far as they have begun. No sidecars.

    `only` is the name of a container that is meant instead of these.
    """
    names = [container.name for container in pod.spec.containers]
    wanted = main_container if main_container in names else names[0] if names else ""
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        is_meant = status.name == only if only else status.name == wanted or status.name not in names
        if is_meant and has_begun(status):
            yield Instance(replica, pod.metadata.uid, status.name, status.restart_count)


def has_begun(status: ContainerStatus) -> bool:
    states = (status.state.running, status.state.terminated, status.last_state.terminated)
    return any(state is not None for state in states)


def has_ended(pod: Pod | None, instance: Instance) -> bool:
    """Whether no more can come: its container has ended, or its pod is another one by now."""
    if pod is None or pod.metadata.uid != instance.uid or pod.is_finished:
        return True
    status = container_status(pod, instance.container)
    return status is not None and (status.restart_count > instance.number or status.state.terminated is not None)


def container_status(pod: Pod, name: str) -> ContainerStatus | None:
    """Of an init container, too."""
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    return next((status for status in statuses if status.name == name), None)
