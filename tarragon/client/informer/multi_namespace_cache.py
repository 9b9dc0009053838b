"""Combines the caches of one kind in several namespaces into one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

from tarragon.client.informer.cache_reader import (
    CacheError,
    CacheReader,
    CacheRecovery,
    EventHandler,
    LostWatch,
    OngoingFailure,
)
from tarragon.client.informer.informer import Informer, namespace_of
from tarragon.kube.meta import Key, Resource

T = TypeVar("T")


def combine_caches(caches: Mapping[str, Informer[T]]) -> CacheReader[T]:
    """One view of the caches, which are given by namespace. At least one is required."""
    if len(caches) == 1:
        return next(iter(caches.values()))
    return MultiNamespaceCache(caches)


class MultiNamespaceCache(Generic[T]):
    """A view of several caches that stay independent: a forbidden or slow namespace does not affect the others."""

    def __init__(self, caches: Mapping[str, Informer[T]]) -> None:
        self._caches = caches
        self._objects = _Objects({namespace: cache.objects for namespace, cache in caches.items()})

    @property
    def resource(self) -> Resource[T]:
        return next(iter(self._caches.values())).resource

    @property
    def objects(self) -> Mapping[Key, T]:
        return self._objects

    @property
    def has_synced(self) -> bool:
        return all(cache.has_synced for cache in self._caches.values())

    def has_synced_in(self, namespace: str) -> bool:
        return namespace in self._caches and self._caches[namespace].has_synced

    @property
    def failure(self) -> OngoingFailure | None:
        """The failure that has lasted longest."""
        found = [cache.failure for cache in self._caches.values() if cache.failure is not None]
        return min(found, key=lambda failing: failing.since, default=None)

    @property
    def recovered_at(self) -> float:
        """The time of the latest recovery of any of the caches."""
        return max(cache.recovered_at for cache in self._caches.values())

    async def wait_for_sync(self) -> None:
        for cache in self._caches.values():
            await cache.wait_for_sync()

    def apply_write(self, found: bytes) -> None:
        cache = self._caches.get(namespace_of(found))
        if cache is not None:
            cache.apply_write(found)

    def add_event_handler(self, handler: EventHandler[T]) -> None:
        for cache in self._caches.values():
            cache.add_event_handler(handler)

    def on_error(self, handler: Callable[[CacheError], None]) -> None:
        for cache in self._caches.values():
            cache.on_error(handler)

    def on_recovery(self, handler: Callable[[CacheRecovery], None]) -> None:
        for cache in self._caches.values():
            cache.on_recovery(handler)

    def on_lost_watch(self, handler: Callable[[LostWatch], None]) -> None:
        for cache in self._caches.values():
            cache.on_lost_watch(handler)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for cache in self._caches.values():
                tasks.create_task(cache.run())


class _Objects(Mapping[Key, T]):
    """A live view. The namespace of a key selects the cache."""

    def __init__(self, parts: Mapping[str, Mapping[Key, T]]) -> None:
        self._parts = parts

    def __getitem__(self, key: Key) -> T:
        return self._parts[key.namespace][key]

    def __iter__(self) -> Iterator[Key]:
        for part in self._parts.values():
            yield from part

    def __len__(self) -> int:
        return sum(map(len, self._parts.values()))
