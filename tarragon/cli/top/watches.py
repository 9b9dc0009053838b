"""Keeps the scene up to date with watches, and reconnects when the cluster is back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from tarragon.base.clock import Clock
from tarragon.base.errors import TarragonError
from tarragon.cli.jobview.jobs import NotInstalled, is_required
from tarragon.cli.jobview.target import ClusterTarget
from tarragon.cli.targets.refusals import is_kind_missing, translate_error
from tarragon.cli.top.resource_metrics import read_usage
from tarragon.cli.top.watched_state import WatchedState
from tarragon.client.errors import ApiError, Forbidden, NotFound, Unauthorized, Unavailable
from tarragon.client.informer.cache_reader import CacheError
from tarragon.client.informer.informer import Informer
from tarragon.client.port import Client, Selector
from tarragon.frameworks.plugin import Framework
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.kube.core import NODES, PODS, Pod
from tarragon.kube.meta import CustomObject, Key, Resource

T = TypeVar("T")

RECONNECT_SECONDS = (0.5, 1.0, 2.0)
"""Seconds between attempts to reconnect; the last one is repeated."""
METRICS_INTERVAL = 15.0
"""Seconds between two requests for metrics, which can't be watched; metrics-server updates them this often."""


@dataclass(frozen=True, slots=True)
class WatchedNamespace:
    """The namespace whose jobs are shown; empty for all."""

    namespace: str


class ClusterWatch:
    """Watches the cluster. While disconnected, `scene` keeps the last state and `trouble` says what is wrong."""

    def __init__(
        self, target: ClusterTarget, clock: Clock, scope: WatchedNamespace, changed: Callable[[], None]
    ) -> None:
        self.state = WatchedState()
        self.error = ""
        self.is_complete = False
        self.cluster: Client | None = None
        self._where = target
        self._clock = clock
        self._scope = scope
        self._changed = changed

    async def run(self) -> None:
        """Watch until cancelled, and reconnect after errors."""
        attempts = 0
        while True:
            try:
                async with self._where.watching() as cluster:
                    session = _Session(cluster, self._clock, self._scope, self._changed)
                    await self._run_session(session)
                    attempts = 0 if session.is_complete else attempts
                    lost = session.lost
            except TarragonError as error:
                lost = error
            self.cluster = None
            self._set_trouble(_trouble_text(self._where, lost))
            await self._clock.sleep(RECONNECT_SECONDS[min(attempts, len(RECONNECT_SECONDS) - 1)])
            attempts += 1

    async def _run_session(self, session: _Session) -> None:
        """Run the session until it is lost. Its scene replaces the previous one once it is complete."""
        running = asyncio.create_task(session.run())
        try:
            reading = asyncio.create_task(session.complete())
            await asyncio.wait((running, reading), return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                self.state, self.cluster = session.scene, session.cluster
                self.is_complete = True
                self._set_trouble("")
            reading.cancel()
            await asyncio.wait((running,))
            running.result()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    def _set_trouble(self, words: str) -> None:
        self.error = words
        self._changed()


class _Session:
    """All watches over one connection. `lost` is the error that ended it."""

    def __init__(self, cluster: Client, clock: Clock, scope: WatchedNamespace, changed: Callable[[], None]) -> None:
        self.scene = WatchedState()
        self.cluster = cluster
        self.lost: TarragonError | None = None
        self._clock = clock
        self._scope = scope
        self._changed = changed
        self._ended = asyncio.Event()
        self._jitter = random.Random()
        self._missing: set[str] = set()
        here = Selector(namespace=scope.namespace)
        self._jobs = [self._cache(framework.resource, here) for framework in FRAMEWORKS]
        self._nodes = self._cache(NODES, Selector())
        self._pods = self._cache(PODS, Selector())
        self._own_pods: Informer[Pod] | None = None
        for framework, cache in zip(FRAMEWORKS, self._jobs, strict=True):
            cache.add_event_handler(self._job_handler(framework))
        self._nodes.add_event_handler(self.scene.node_changed)
        self._nodes.add_event_handler(lambda *_: self._changed())
        self._follow_pods(self._pods)
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def is_complete(self) -> bool:
        """Whether every kind of job has been listed or is not installed, and at least one has been listed."""
        settled = [cache.has_synced or cache.resource.full_name in self._missing for cache in self._jobs]
        return all(settled) and any(cache.has_synced for cache in self._jobs)

    async def complete(self) -> None:
        """Return when the required kinds of jobs have been listed."""
        for cache, framework in zip(self._jobs, FRAMEWORKS, strict=True):
            if is_required(framework.resource):
                await cache.wait_for_sync()

    async def run(self) -> None:
        """Run all watches; return when the cluster stops answering."""
        self._tasks += [asyncio.create_task(cache.run()) for cache in self._jobs]
        self._tasks += [asyncio.create_task(self._nodes.run()), asyncio.create_task(self._pods.run())]
        self._tasks.append(asyncio.create_task(self._poll_metrics()))
        ended = asyncio.create_task(self._ended.wait())
        try:
            while not ended.done():
                done, _ = await asyncio.wait((*self._tasks, ended), return_when=asyncio.FIRST_COMPLETED)
                for task in done - {ended}:
                    task.result()
        finally:
            for task in (*self._tasks, ended):
                task.cancel()
            await asyncio.gather(*self._tasks, ended, return_exceptions=True)

    def _cache(self, resource: Resource[T], selection: Selector) -> Informer[T]:
        cache = Informer(self.cluster, resource, self._clock, selection, jitter=self._jitter)
        cache.on_error(lambda trouble: self._on_trouble(resource, trouble))
        return cache

    def _job_handler(self, framework: Framework) -> Callable[[Key, CustomObject | None, CustomObject | None], None]:
        def changed(_: Key, old: CustomObject | None, new: CustomObject | None) -> None:
            self.scene.job_changed(framework, old, new)
            self._changed()

        return changed

    def _follow_pods(self, cache: Informer[Pod]) -> None:
        def changed(key: Key, old: Pod | None, new: Pod | None) -> None:
            self.scene.requests.update(old, new)
            if self._scope.namespace in {"", key.namespace}:
                self.scene.pod_changed(key, old, new)
            self._changed()

        cache.add_event_handler(changed)

    def _on_trouble(self, resource: Resource[T], trouble: CacheError) -> None:
        error = trouble.error
        if isinstance(error, Unavailable):
            self._disconnect(error)
        elif isinstance(error, Forbidden):
            self._on_forbidden(resource, error)
        elif isinstance(error, Unauthorized) or (isinstance(error, NotFound) and not is_kind_missing(error)):
            self._disconnect(error)
        elif isinstance(error, NotFound):
            self._missing.add(resource.full_name)
            if all(cache.resource.full_name in self._missing for cache in self._jobs):
                self._disconnect(NotInstalled())

    def _on_forbidden(self, resource: Resource[T], error: ApiError) -> None:
        if resource.kind == PODS.kind and self._own_pods is None and self._scope.namespace:
            self._own_pods = self._cache(PODS, Selector(namespace=self._scope.namespace))
            self._follow_pods(self._own_pods)
            self._tasks.append(asyncio.create_task(self._own_pods.run()))
            self.scene.forbidden["requests"] = f"requests include only pods in namespace {self._scope.namespace}"
        elif resource.kind in {framework.resource.kind for framework in FRAMEWORKS}:
            self._missing.add(resource.full_name)
            if is_required(resource):
                self._disconnect(error)
        else:
            self.scene.forbidden[resource.plural] = f"you may not list {resource.plural}"
        self.scene.version += 1
        self._changed()

    def _disconnect(self, error: TarragonError) -> None:
        self.lost = self.lost or error
        self._ended.set()

    async def _poll_metrics(self) -> None:
        """Poll metrics. A cluster without metrics is asked only once."""
        while True:
            with suppress(Unavailable):
                found = await read_usage(self.cluster, self._scope.namespace)
                if found is None:
                    await asyncio.Event().wait()
                self.scene.usage = found or {}
                self.scene.version += 1
                self._changed()
            await self._clock.sleep(METRICS_INTERVAL)


def _trouble_text(target: ClusterTarget, error: TarragonError | None) -> str:
    if error is None:
        return f"{target.name} does not answer; retrying"
    if isinstance(error, Unavailable):
        return f"{target.name} does not answer ({error.summary}); retrying"
    readable = translate_error(error, target.name, target.command_prefix)
    return ": ".join(filter(None, (readable.summary, readable.remedy)))
