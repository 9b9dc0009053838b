"""Watches one job and its pods, and lets a caller wait for changes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from tarragon.base.clock import Clock
from tarragon.cli.jobview.jobs import ClusterJob
from tarragon.client.errors import Forbidden, Unauthorized, Unavailable
from tarragon.client.informer.cache_reader import CacheError
from tarragon.client.informer.informer import Informer
from tarragon.client.port import Client, Selector
from tarragon.kube.core import PODS, Pod
from tarragon.kube.meta import CustomObject


class JobWatch:
    """The current state of one job and its pods. Valid within `watching`.

    `trouble` is set when the cluster is unreachable or forbids the watch. Nothing changes here after that.
    """

    def __init__(self, cluster: Client, job: ClusterJob, clock: Clock) -> None:
        self.cluster = cluster
        self.error: Unavailable | Unauthorized | Forbidden | None = None
        self._key = job.key
        self._uid = job.uid
        self._changes = asyncio.Event()
        self._is_lost = asyncio.Event()
        jitter = random.Random()
        job_selection = Selector(namespace=job.key.namespace, field_selector=f"metadata.name={job.key.name}")
        pod_selection = Selector(namespace=job.key.namespace, label_selector=job.selector)
        self._jobs: Informer[CustomObject] = Informer(
            cluster, job.framework.resource, clock, job_selection, jitter=jitter
        )
        self._pod_selection = pod_selection
        self._pods: Informer[Pod] = Informer(cluster, PODS, clock, pod_selection, jitter=jitter)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Runs the two watches while the context is open."""
        self._jobs.add_event_handler(lambda _key, _old, _new: self._changes.set())
        self._pods.add_event_handler(lambda _key, _old, _new: self._changes.set())
        tasks: list[asyncio.Task[None]] = []
        for cache in (self._jobs, self._pods):
            cache.on_error(self._on_trouble)
            tasks += [asyncio.create_task(cache.run()), asyncio.create_task(self._signal_sync(cache))]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def job(self) -> CustomObject | None:
        """The job; None if it is deleted, also if another job has its name now."""
        found = self._jobs.objects.get(self._key)
        return found if found is not None and found.metadata.uid == self._uid else None

    @property
    def pods(self) -> Sequence[Pod]:
        return list(self._pods.objects.values())

    async def list_pods(self) -> Sequence[Pod]:
        """Lists the pods again: the answer is at least as new as everything seen before."""
        return (await self.cluster.list(PODS, self._pod_selection)).items

    def wake(self) -> None:
        """Makes `wait_for_change` return, for a change that did not come from the cluster."""
        self._changes.set()

    async def wait_for_change(self) -> None:
        """Returns when something changed since the last call and both caches are synced, or when there is trouble."""
        while True:
            await self._changes.wait()
            self._changes.clear()
            if self.error is not None or (self._jobs.has_synced and self._pods.has_synced):
                return

    async def wait_for_error(self) -> None:
        """Returns when there is trouble."""
        await self._is_lost.wait()

    async def _signal_sync(self, cache: Informer[CustomObject] | Informer[Pod]) -> None:
        """Signals the first sync: it is a change even if the list is empty."""
        await cache.wait_for_sync()
        self._changes.set()

    def _on_trouble(self, trouble: CacheError) -> None:
        if isinstance(trouble.error, Unavailable | Unauthorized | Forbidden):
            self.error = trouble.error
            self._is_lost.set()
            self._changes.set()
