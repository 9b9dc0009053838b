"""A hollow kubelet: nodes whose pods start and end as their annotations say, without a process, by the ten thousand.

Annotations of a pod that count here, all optional:
    tarragon.dev/hollow-seconds        how long its containers run; by default what the settings say, else for ever
    tarragon.dev/hollow-exit-code      how they end then
    tarragon.dev/hollow-stop-seconds   how long they take to end when the pod is deleted, at most its grace

All containers of a pod share one fate. Who asks for more than is left is refused, as by any kubelet; nothing is read:
no volumes, probes or images.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import heapq
import itertools
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import structlog

from tarragon.base.clock import Clock
from tarragon.base.resources import CPU, MEMORY, PODS, Resources
from tarragon.client.errors import AlreadyExists, ApiError, Conflict, NotFound
from tarragon.client.informer.cache_reader import Recovery, Trouble
from tarragon.client.informer.reflector import Cache
from tarragon.client.port import Cluster, DeleteOptions, Selection
from tarragon.kube import core
from tarragon.kube.codec import timestamp
from tarragon.kube.core import NODES, Node
from tarragon.kube.meta import Key
from tarragon.localcluster.kubelet.hollow.capacity import Room
from tarragon.localcluster.kubelet.hollow.pod import HollowPod, ended, refused, running, unreadable
from tarragon.localcluster.kubelet.node import lease
from tarragon.localcluster.kubelet.node import node as real_node

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
ENDED_BY_SIGTERM = 143
RESTARTED_SECONDS = 10.0
"""What a restarted container runs at least: in place of a back-off."""

_ROOM: Resources = MappingProxyType({CPU: 64_000, MEMORY: 256 * 2**30 * 1000, PODS: 500_000})
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class HollowSettings:
    """`capacity` of each node, in thousandths; `seconds` None: containers run until their pod is deleted.

    A node controller takes a node without a heartbeat for lost after 40 s; where none runs, `heartbeat_seconds` may be
    as long as one likes. `writers`: requests at once.
    """

    names: Sequence[str]
    capacity: Resources = field(default_factory=lambda: _ROOM)
    labels: Mapping[str, str] = field(default_factory=dict)
    seconds: float | None = None
    exit_code: int = 0
    start_seconds: float = 0.0
    heartbeat_seconds: float = 20.0
    writers: int = 16


class Hollow:
    """`run` does the work until it is cancelled. All truth is in the API: another one's `run` goes on from there."""

    def __init__(self, cluster: Cluster, settings: HollowSettings, clock: Clock) -> None:
        self._cluster = cluster
        self._settings = settings
        self._clock = clock
        self._names = frozenset(settings.names)
        one = settings.names[0] if len(settings.names) == 1 else ""
        mine = Selection(fields=f"spec.nodeName={one}" if one else "spec.nodeName!=")
        pods = core.PODS.reading(HollowPod)
        dice = random.Random()
        self._pods = Cache(cluster, pods, clock, mine, jitter=dice)
        self._resource = pods
        self._agenda = _Agenda(clock)
        self._due: asyncio.Queue[_Entry] = asyncio.Queue()
        self._acting: set[Key] = set()
        self._awaited: dict[Key, int] = {}
        self._room = Room(settings.capacity)
        self._started: dict[str, dt.datetime] = {}
        self._registered = asyncio.Event()
        self._nodes = Cache(cluster, NODES, clock, Selection(fields=f"metadata.name={one}" if one else ""), jitter=dice)
        self._doubted: set[str] = set()
        self._doubt = asyncio.Event()

    async def registered(self) -> None:
        """Return when all nodes have been made and told Ready."""
        await self._registered.wait()

    async def run(self) -> None:
        self._pods.on_trouble(_report)
        self._pods.on_recovery(_report_end)
        self._pods.subscribe(self._changed)
        self._nodes.on_trouble(_report)
        self._nodes.on_recovery(_report_end)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._stay_ready())
            group.create_task(self._answer_doubts())
            group.create_task(self._pods.run())
            group.create_task(self._keep_time())
            for _ in range(self._settings.writers):
                group.create_task(self._write())

    # ------------------------------------------------------------------------------------------------------------ pods

    def _changed(self, key: Key, old: HollowPod | None, new: HollowPod | None) -> None:
        if old is not None and (new is None or new.is_finished):
            self._started.pop(old.metadata.uid, None)
            self._room.release(old)
        if new is not None and new.is_running and new.spec.node_name in self._names:
            self._room.promise(new)
        if new is None:
            self._awaited.pop(key, None)
        elif new.spec.node_name in self._names and key not in self._acting:
            self._consider(key, new)

    def _consider(self, key: Key, pod: HollowPod) -> None:
        """What the watch tells may be older than what our own last write was answered."""
        if pod.version < self._awaited.get(key, 0):
            return
        self._awaited.pop(key, None)
        due = self._moment(pod)
        if due is not None:
            self._agenda.add(due, key, pod)

    def _moment(self, pod: HollowPod) -> dt.datetime | None:
        """When there is something to do for it next, if ever."""
        now = self._clock.now()
        if pod.is_ending:
            asked = pod.deletion_asked or now
            return asked + dt.timedelta(seconds=pod.stop_seconds) if pod.is_running else now
        if pod.is_finished:
            return None
        if not pod.is_running:
            return now + dt.timedelta(seconds=self._settings.start_seconds)
        seconds = self._seconds(pod)
        if seconds is None:
            return None
        # Kubernetes keeps whole seconds; of those that we have started ourselves we know better.
        started = self._started.get(pod.metadata.uid) or pod.started or now
        return started + dt.timedelta(seconds=seconds)

    def _seconds(self, pod: HollowPod) -> float | None:
        seconds = self._settings.seconds if pod.seconds is None else pod.seconds
        if seconds is not None and pod.restarts:
            return max(seconds, RESTARTED_SECONDS)
        return seconds

    async def _keep_time(self) -> None:
        while True:
            for entry in self._agenda.take_due():
                pod = self._pods.objects.get(entry.key)
                # A pod that has changed since stands further down, or nothing is to be done for it any more.
                if pod is not None and pod.version == entry.version and entry.key not in self._acting:
                    self._acting.add(entry.key)
                    self._due.put_nowait(entry)
            await self._agenda.next_due()

    async def _write(self) -> None:
        while True:
            entry = await self._due.get()
            version, pause = 0, 0.0
            pod = self._pods.objects.get(entry.key)
            try:
                if pod is not None:
                    version = await self._act(pod)
            except (NotFound, Conflict):
                pause = FIRST_PAUSE  # by then the watch has told what has become of it
            except ApiError as error:
                pause = max(FIRST_PAUSE, error.retry_after)
                _log.info("a hollow pod could not be told", pod=str(entry.key), error=str(error))
            self._acted(entry.key, version, pause)

    def _acted(self, key: Key, version: int, pause: float) -> None:
        self._acting.discard(key)
        pod = self._pods.objects.get(key)
        if pod is None:
            return
        if pause:
            self._agenda.add(self._clock.now() + dt.timedelta(seconds=pause), key, pod)
            return
        if version > pod.version:
            self._awaited[key] = version
        else:
            self._consider(key, pod)

    async def _act(self, pod: HollowPod) -> int:
        """Do what is due; the version that must be seen before anything else is."""
        now = self._clock.now()
        if pod.is_ending:
            version = await self._tell(pod, ended(pod, ENDED_BY_SIGTERM, now)) if pod.is_running else pod.version
            await self._remove(pod)
            return version + 1
        if not pod.is_readable:
            return await self._tell(pod, unreadable(pod, now))
        if not pod.is_running:
            verdict = self._room.admit(pod)
            if verdict is not None:
                return await self._tell(pod, refused(verdict, now))
            self._started[pod.metadata.uid] = now
            return await self._tell(pod, running(pod, now))
        code = self._settings.exit_code if pod.exit_code is None else pod.exit_code
        if pod.restarts_after(code):
            self._started[pod.metadata.uid] = now
            return await self._tell(pod, running(pod, now, ended_with=code))
        return await self._tell(pod, ended(pod, code, now))

    async def _tell(self, pod: HollowPod, status: Mapping[str, object]) -> int:
        body = {"metadata": {"uid": pod.metadata.uid}, "status": status}
        return (await self._cluster.patch(self._resource, pod.key, body, subresource="status")).version

    async def _remove(self, pod: HollowPod) -> None:
        await self._cluster.delete(self._resource, pod.key, DeleteOptions(uid=pod.metadata.uid, grace_seconds=0))

    # ----------------------------------------------------------------------------------------------------------- nodes

    async def _stay_ready(self) -> None:
        """Register all, then renew the lease of each once a period, evenly spread over it."""
        await self._for_all(self._settings.names, self._register)
        self._registered.set()
        self._nodes.subscribe(self._node_changed)
        names = self._settings.names
        turns = max(1, min(len(names), int(self._settings.heartbeat_seconds)))
        due = self._clock.monotonic()
        for turn in itertools.cycle(range(turns)):
            await self._for_all(names[turn::turns], self._renew)
            due = max(due + self._settings.heartbeat_seconds / turns, self._clock.monotonic())
            await self._clock.sleep(due - self._clock.monotonic())

    def _node_changed(self, key: Key, _: Node | None, new: Node | None) -> None:
        if key.name in self._names and (new is None or not new.is_ready):
            self._doubted.add(key.name)
            self._doubt.set()

    async def _answer_doubts(self) -> None:
        """A node controller that missed heartbeats, through whosever fault, wants to be told anew, not a lease."""
        await self._registered.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._nodes.run())
            while True:
                await self._doubt.wait()
                self._doubt.clear()
                names, self._doubted = sorted(self._doubted), set()
                await self._for_all(names, self._register)
                await self._clock.sleep(FIRST_PAUSE)

    async def _for_all(self, names: Sequence[str], do: Callable[[str], Awaitable[None]]) -> None:
        rest = iter(names)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._settings.writers, len(names))):
                group.create_task(self._one_by_one(rest, do))

    async def _one_by_one(self, names: Iterator[str], do: Callable[[str], Awaitable[None]]) -> None:
        for name in names:
            await do(name)

    async def _register(self, name: str) -> None:
        """Until it has succeeded: made or made again, Ready, without a taint."""
        pause = FIRST_PAUSE
        while True:
            try:
                await self._make(name)
            except ApiError as error:
                _log.info("a hollow node could not be made", node=name, error=str(error), pause=pause)
                await self._clock.sleep(max(pause, error.retry_after))
                pause = min(pause * 2, LONGEST_PAUSE)
            else:
                return

    async def _make(self, name: str) -> None:
        settings = self._settings
        body = real_node.manifest(name, {**settings.labels, real_node.KIND: "hollow"})
        try:
            await self._cluster.create(NODES, body)
        except AlreadyExists:
            await self._cluster.patch(NODES, Key("", name), {"metadata": {"labels": body["metadata"]["labels"]}})
        status = real_node.status(name, settings.capacity, timestamp(self._clock.now()))
        await self._cluster.patch(NODES, Key("", name), {"status": status}, subresource="status")
        # An API server taints a new node, and where no controller runs nobody would take it away.
        await self._cluster.patch(NODES, Key("", name), {"spec": {"taints": None}})
        await self._renew(name)

    async def _renew(self, name: str) -> None:
        try:
            await lease.renew(self._cluster, name, self._clock)
        except ApiError as error:
            _log.debug("the lease of a hollow node could not be renewed", node=name, error=str(error))


@dataclass(frozen=True, slots=True)
class _Entry:
    """Something to do for a pod, if that is still as it was."""

    key: Key
    version: int


class _Agenda:
    """What is due when."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, _Entry]] = []
        self._order = itertools.count()
        self._sooner = asyncio.Event()

    def add(self, due: dt.datetime, key: Key, pod: HollowPod) -> None:
        at = self._clock.monotonic() + (due - self._clock.now()).total_seconds()
        if not self._heap or at < self._heap[0][0]:
            self._sooner.set()
        heapq.heappush(self._heap, (at, next(self._order), _Entry(key, pod.version)))

    def take_due(self) -> Iterator[_Entry]:
        while self._heap and self._heap[0][0] <= self._clock.monotonic():
            yield heapq.heappop(self._heap)[2]

    async def next_due(self) -> None:
        """Return when something may be due."""
        self._sooner.clear()
        waiting: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._sooner.wait())]
        if self._heap:
            seconds = self._heap[0][0] - self._clock.monotonic()
            waiting.append(asyncio.ensure_future(self._clock.sleep(max(0.0, seconds))))
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()


def _report(trouble: Trouble) -> None:
    _log.warning("the hollow kubelet cannot follow the API", trouble=str(trouble))


def _report_end(recovery: Recovery) -> None:
    _log.info("the hollow kubelet follows the API again", over=str(recovery))
