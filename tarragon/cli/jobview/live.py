"""One job and its pods, kept up to date, with a way to wait until something has changed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from tarragon.base.clock import Clock
from tarragon.cli.jobview.jobs import Known
from tarragon.client.errors import Forbidden, Unauthorized, Unavailable
from tarragon.client.informer.cache_reader import Trouble
from tarragon.client.informer.reflector import Cache
from tarragon.client.port import Cluster, Selection
from tarragon.kube.core import PODS, Pod
from tarragon.kube.meta import CustomObject


class Live:
    """Valid within `watching`. `trouble` is set when the cluster is gone, or does not let us
    look: then nothing here changes any more.
    """

    def __init__(self, cluster: Cluster, job: Known, clock: Clock) -> None:
        self.cluster = cluster
        self.trouble: Unavailable | Unauthorized | Forbidden | None = None
        self._key = job.key
        self._uid = job.uid
        self._news = asyncio.Event()
        self._is_lost = asyncio.Event()
        jitter = random.Random()
        mine = Selection(namespace=job.key.namespace, fields=f"metadata.name={job.key.name}")
        theirs = Selection(namespace=job.key.namespace, labels=job.selector)
        self._jobs: Cache[CustomObject] = Cache(cluster, job.framework.resource, clock, mine, jitter=jitter)
        self._theirs = theirs
        self._pods: Cache[Pod] = Cache(cluster, PODS, clock, theirs, jitter=jitter)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Keeps the copies up to date."""
        self._jobs.subscribe(lambda _key, _old, _new: self._news.set())
        self._pods.subscribe(lambda _key, _old, _new: self._news.set())
        tasks: list[asyncio.Task[None]] = []
        for cache in (self._jobs, self._pods):
            cache.on_trouble(self._troubled)
            tasks += [asyncio.create_task(cache.run()), asyncio.create_task(self._tell_first(cache))]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def job(self) -> CustomObject | None:
        """None also when another one has taken its name."""
        found = self._jobs.objects.get(self._key)
        return found if found is not None and found.metadata.uid == self._uid else None

    @property
    def pods(self) -> Sequence[Pod]:
        return list(self._pods.objects.values())

    async def pods_now(self) -> Sequence[Pod]:
        """Asked for anew: at least as new as everything that was seen before."""
        return (await self.cluster.list(PODS, self._theirs)).items

    def wake(self) -> None:
        """Something else than the cluster has news."""
        self._news.set()

    async def changed(self) -> None:
        """Return when there is news since the last call, and both have been read whole, or when there is trouble."""
        while True:
            await self._news.wait()
            self._news.clear()
            if self.trouble is not None or (self._jobs.is_synced and self._pods.is_synced):
                return

    async def lost(self) -> None:
        """Return when there is trouble."""
        await self._is_lost.wait()

    async def _tell_first(self, cache: Cache[CustomObject] | Cache[Pod]) -> None:
        """An empty list is news, too."""
        await cache.synced()
        self._news.set()

    def _troubled(self, trouble: Trouble) -> None:
        if isinstance(trouble.error, Unavailable | Unauthorized | Forbidden):
            self.trouble = trouble.error
            self._is_lost.set()
            self._news.set()
