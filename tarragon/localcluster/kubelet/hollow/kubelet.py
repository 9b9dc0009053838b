"""The hollow kubelet: simulates thousands of nodes, whose pods start and end without processes.

Annotations of a pod that are read here, all optional:
    tarragon.dev/hollow-seconds        how long its containers run; by default as in the settings, else forever
    tarragon.dev/hollow-exit-code      their exit code
    tarragon.dev/hollow-stop-seconds   how long they take to end when the pod is deleted, at most its grace period

All containers of a pod start and end together. Pods that do not fit are rejected, as by any kubelet. Volumes, probes
and images are ignored. With the label `tarragon.dev/gpu-sharing: anchor`, GPUs are shared as on real nodes; the kubelet
itself then writes into the annotation of an anchor which GPU it has, because hollow pods have no logs.
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
from tarragon.base.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, Resources
from tarragon.client.errors import AlreadyExists, ApiError, Conflict, NotFound
from tarragon.client.informer.cache_reader import CacheError, CacheRecovery
from tarragon.client.informer.informer import Informer
from tarragon.client.port import Client, DeleteOptions, Selector
from tarragon.kube import core
from tarragon.kube.codec import format_time
from tarragon.kube.core import NODES, Node
from tarragon.kube.meta import Key
from tarragon.kube.scheduling.gpu_shares import GPU_UUID_ANNOTATION, gpu_memory
from tarragon.kube.scheduling.node_gpu_sharing import GPU_SHARING_LABEL, GpuSharing
from tarragon.localcluster.kubelet.hollow.admission import HollowAllocations
from tarragon.localcluster.kubelet.hollow.pod import (
    HollowPod,
    ended_status,
    invalid_annotations_status,
    rejected_status,
    running_status,
)
from tarragon.localcluster.kubelet.node import lease
from tarragon.localcluster.kubelet.node import node as real_node

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
SIGTERM_EXIT_CODE = 143
MIN_RESTARTED_SECONDS = 10.0
"""The least time that a restarted container runs, instead of a back-off."""

_DEFAULT_CAPACITY: Resources = MappingProxyType(
    {CPU: 64_000, MEMORY: 256 * 2**30 * 1000, EPHEMERAL_STORAGE: 2**40 * 1000, PODS: 500_000}
)
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class HollowSettings:
    """The settings of all hollow nodes. `capacity` is that of each node, in thousandths.

    If `seconds` is None, containers run until their pod is deleted. A node controller considers a node lost after 40 s
    without a heartbeat; without one, `heartbeat_seconds` may be any number. `writers` is the number of concurrent
    requests.
    """

    names: Sequence[str]
    capacity: Resources = field(default_factory=lambda: _DEFAULT_CAPACITY)
    labels: Mapping[str, str] = field(default_factory=dict)
    seconds: float | None = None
    exit_code: int = 0
    start_seconds: float = 0.0
    heartbeat_seconds: float = 20.0
    writers: int = 16


class HollowKubelet:
    """Runs hollow nodes until `run` is cancelled. All state is in the API, so another `run` continues from there."""

    def __init__(self, cluster: Client, settings: HollowSettings, clock: Clock) -> None:
        self._cluster = cluster
        self._settings = settings
        self._clock = clock
        self._names = frozenset(settings.names)
        only_node = settings.names[0] if len(settings.names) == 1 else ""
        selection = Selector(field_selector=f"spec.nodeName={only_node}" if only_node else "spec.nodeName!=")
        resource = core.PODS.with_model(HollowPod)
        jitter = random.Random()
        self._pods = Informer(cluster, resource, clock, selection, jitter=jitter)
        self._resource = resource
        self._timers = _TimerQueue(clock)
        self._due: asyncio.Queue[_Timer] = asyncio.Queue()
        self._in_progress: set[Key] = set()
        self._expected_versions: dict[Key, int] = {}
        self._allocations = HollowAllocations(
            settings.capacity,
            gpu_memory(settings.labels),
            have_anchors=settings.labels.get(GPU_SHARING_LABEL) == GpuSharing.ANCHOR,
        )
        self._started: dict[str, dt.datetime] = {}
        self._registered = asyncio.Event()
        nodes = Selector(field_selector=f"metadata.name={only_node}" if only_node else "")
        self._nodes = Informer(cluster, NODES, clock, nodes, jitter=jitter)
        self._unready_nodes: set[str] = set()
        self._has_unready_nodes = asyncio.Event()

    async def registered(self) -> None:
        """Return when all nodes have been created and reported Ready."""
        await self._registered.wait()

    async def run(self) -> None:
        self._pods.on_error(_report)
        self._pods.on_recovery(_report_end)
        self._pods.add_event_handler(self._changed)
        self._nodes.on_error(_report)
        self._nodes.on_recovery(_report_end)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._run_heartbeats())
            group.create_task(self._repair_nodes())
            group.create_task(self._pods.run())
            group.create_task(self._enqueue_due())
            for _ in range(self._settings.writers):
                group.create_task(self._write_statuses())

    # ------------------------------------------------------------------------------------------------------------ pods

    def _changed(self, key: Key, old: HollowPod | None, new: HollowPod | None) -> None:
        if old is not None and (new is None or new.is_finished):
            self._started.pop(old.metadata.uid, None)
            self._allocations.release(old)
        if new is not None and new.is_running and new.spec.node_name in self._names:
            self._allocations.allocate(new)
        if new is not None and new.is_ending and new.spec.node_name in self._names:
            self._allocations.leave(new)
        if new is None:
            self._expected_versions.pop(key, None)
        elif new.spec.node_name in self._names and key not in self._in_progress:
            self._schedule(key, new)

    def _schedule(self, key: Key, pod: HollowPod) -> None:
        """Schedule the pod's next step, unless the watch is still behind our own last write."""
        if pod.version < self._expected_versions.get(key, 0):
            return
        self._expected_versions.pop(key, None)
        due = self._next_due(pod)
        if due is not None:
            self._timers.add(due, key, pod)

    def _next_due(self, pod: HollowPod) -> dt.datetime | None:
        """When the pod's next step is due; None for never."""
        now = self._clock.now()
        if pod.is_ending:
            deleted = pod.deletion_requested or now
            return deleted + dt.timedelta(seconds=pod.stop_seconds) if pod.is_running else now
        if pod.is_finished:
            return None
        if not pod.is_running:
            return now + dt.timedelta(seconds=self._settings.start_seconds)
        seconds = self._seconds(pod)
        if seconds is None:
            return None
        # The status has whole seconds; the start of pods that we started ourselves is known exactly.
        started = self._started.get(pod.metadata.uid) or pod.started or now
        return started + dt.timedelta(seconds=seconds)

    def _seconds(self, pod: HollowPod) -> float | None:
        seconds = self._settings.seconds if pod.seconds is None else pod.seconds
        if seconds is not None and pod.restarts:
            return max(seconds, MIN_RESTARTED_SECONDS)
        return seconds

    async def _enqueue_due(self) -> None:
        while True:
            for timer in self._timers.take_due():
                pod = self._pods.objects.get(timer.key)
                # A pod that changed meanwhile has a later timer, or needs none.
                if pod is not None and pod.version == timer.version and timer.key not in self._in_progress:
                    self._in_progress.add(timer.key)
                    self._due.put_nowait(timer)
            await self._timers.next_due()

    async def _write_statuses(self) -> None:
        while True:
            timer = await self._due.get()
            version, pause = 0, 0.0
            pod = self._pods.objects.get(timer.key)
            try:
                if pod is not None:
                    version = await self._act(pod)
            except (NotFound, Conflict):
                pause = FIRST_PAUSE  # by then the watch has delivered the pod's new state
            except ApiError as error:
                pause = max(FIRST_PAUSE, error.retry_after)
                _log.info("the status of a hollow pod could not be written", pod=str(timer.key), error=str(error))
            self._in_progress.discard(timer.key)
            if pause and pod is not None:
                self._retry(pod, pause)
            else:
                self._finish(timer.key, version)

    def _retry(self, before: HollowPod, pause: float) -> None:
        """Schedule the step that failed, or the next one: it may be done although its answer was lost."""
        pod = self._pods.objects.get(before.key)
        if pod is None:
            return
        now = self._clock.now()
        due = now if pod.version == before.version else self._next_due(pod)
        if due is not None:
            self._timers.add(max(due, now + dt.timedelta(seconds=pause)), pod.key, pod)

    def _finish(self, key: Key, version: int) -> None:
        pod = self._pods.objects.get(key)
        if pod is None:
            return
        if version > pod.version:
            self._expected_versions[key] = version
        else:
            self._schedule(key, pod)

    async def _act(self, pod: HollowPod) -> int:
        """Do the pod's next step; return the version that the watch must reach before a further step."""
        now = self._clock.now()
        if pod.is_ending:
            version = (
                await self._write_status(pod, ended_status(pod, SIGTERM_EXIT_CODE, now))
                if pod.is_running
                else pod.version
            )
            await self._remove(pod)
            return version + 1
        if not pod.has_valid_annotations:
            return await self._write_status(pod, invalid_annotations_status(pod, now))
        if not pod.is_running:
            verdict = self._allocations.admit(pod)
            if verdict is not None:
                return await self._write_status(pod, rejected_status(verdict, now))
            gpu = self._allocations.held_gpu(pod)
            if gpu:
                await self._annotate(pod, {GPU_UUID_ANNOTATION: gpu})
            self._started[pod.metadata.uid] = now
            return await self._write_status(pod, running_status(pod, now))
        code = self._settings.exit_code if pod.exit_code is None else pod.exit_code
        if pod.restarts_after(code):
            self._started[pod.metadata.uid] = now
            return await self._write_status(pod, running_status(pod, now, ended_with=code))
        return await self._write_status(pod, ended_status(pod, code, now))

    async def _write_status(self, pod: HollowPod, status: Mapping[str, object]) -> int:
        body = {"metadata": {"uid": pod.metadata.uid}, "status": status}
        return (await self._cluster.patch(self._resource, pod.key, body, subresource="status")).version

    async def _annotate(self, pod: HollowPod, annotations: Mapping[str, str]) -> None:
        body = {"metadata": {"uid": pod.metadata.uid, "annotations": annotations}}
        await self._cluster.patch(self._resource, pod.key, body)

    async def _remove(self, pod: HollowPod) -> None:
        await self._cluster.delete(self._resource, pod.key, DeleteOptions(uid=pod.metadata.uid, grace_period_seconds=0))

    # ----------------------------------------------------------------------------------------------------------- nodes

    async def _run_heartbeats(self) -> None:
        """Register all nodes, then renew each lease once per period, spread evenly over it."""
        await self._for_all(self._settings.names, self._register)
        self._registered.set()
        self._nodes.add_event_handler(self._node_changed)
        names = self._settings.names
        batches = max(1, min(len(names), int(self._settings.heartbeat_seconds)))
        due = self._clock.monotonic()
        for batch in itertools.cycle(range(batches)):
            await self._for_all(names[batch::batches], self._renew_lease)
            due = max(due + self._settings.heartbeat_seconds / batches, self._clock.monotonic())
            await self._clock.sleep(due - self._clock.monotonic())

    def _node_changed(self, key: Key, _: Node | None, new: Node | None) -> None:
        if key.name in self._names and (new is None or not new.is_ready):
            self._unready_nodes.add(key.name)
            self._has_unready_nodes.set()

    async def _repair_nodes(self) -> None:
        """Register nodes again that were deleted or marked not ready: for a node controller, a lease is not enough."""
        await self._registered.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._nodes.run())
            await self._nodes.wait_for_sync()
            # No event tells of those that were deleted before.
            for name in self._names - {key.name for key in self._nodes.objects}:
                self._node_changed(Key("", name), None, None)
            while True:
                await self._has_unready_nodes.wait()
                self._has_unready_nodes.clear()
                names, self._unready_nodes = sorted(self._unready_nodes), set()
                await self._for_all(names, self._register)
                await self._clock.sleep(FIRST_PAUSE)

    async def _for_all(self, names: Sequence[str], do: Callable[[str], Awaitable[None]]) -> None:
        rest = iter(names)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._settings.writers, len(names))):
                group.create_task(self._call_each(rest, do))

    async def _call_each(self, names: Iterator[str], do: Callable[[str], Awaitable[None]]) -> None:
        for name in names:
            await do(name)

    async def _register(self, name: str) -> None:
        """Create or update the node, Ready and without taints; retry until that succeeds."""
        pause = FIRST_PAUSE
        while True:
            try:
                await self._create_node(name)
            except ApiError as error:
                _log.info("a hollow node could not be registered", node=name, error=str(error), pause=pause)
                await self._clock.sleep(max(pause, error.retry_after))
                pause = min(pause * 2, LONGEST_PAUSE)
            else:
                return

    async def _create_node(self, name: str) -> None:
        settings = self._settings
        body = real_node.node_manifest(name, {**settings.labels, real_node.NODE_KIND_LABEL: "hollow"})
        try:
            await self._cluster.create(NODES, body)
        except AlreadyExists:
            await self._cluster.patch(NODES, Key("", name), {"metadata": {"labels": body["metadata"]["labels"]}})
        status = real_node.node_status(name, settings.capacity, format_time(self._clock.now()))
        await self._cluster.patch(NODES, Key("", name), {"status": status}, subresource="status")
        # An API server taints new nodes, and without a node controller the taint would stay.
        await self._cluster.patch(NODES, Key("", name), {"spec": {"taints": None}})
        await self._renew_lease(name)

    async def _renew_lease(self, name: str) -> None:
        try:
            await lease.renew_lease(self._cluster, name, self._clock)
        except ApiError as error:
            _log.debug("the lease of a hollow node could not be renewed", node=name, error=str(error))


@dataclass(frozen=True, slots=True)
class _Timer:
    """A pod's step that is due, valid while the pod has this version."""

    key: Key
    version: int


class _TimerQueue:
    """A heap of timers by due time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, _Timer]] = []
        self._order = itertools.count()
        self._has_earlier = asyncio.Event()

    def add(self, due: dt.datetime, key: Key, pod: HollowPod) -> None:
        at = self._clock.monotonic() + (due - self._clock.now()).total_seconds()
        if not self._heap or at < self._heap[0][0]:
            self._has_earlier.set()
        heapq.heappush(self._heap, (at, next(self._order), _Timer(key, pod.version)))

    def take_due(self) -> Iterator[_Timer]:
        while self._heap and self._heap[0][0] <= self._clock.monotonic():
            yield heapq.heappop(self._heap)[2]

    async def next_due(self) -> None:
        """Return when a timer may be due."""
        self._has_earlier.clear()
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._has_earlier.wait())]
        if self._heap:
            seconds = self._heap[0][0] - self._clock.monotonic()
            waits.append(asyncio.ensure_future(self._clock.sleep(max(0.0, seconds))))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()


def _report(trouble: CacheError) -> None:
    _log.warning("the hollow kubelet cannot follow the API", trouble=str(trouble))


def _report_end(recovery: CacheRecovery) -> None:
    _log.info("the hollow kubelet follows the API again", over=str(recovery))
