"""What the workload controllers share: the pod cache, the index of owners, and expectations."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

import structlog

from tarragon.base.clock import Clock
from tarragon.client.errors import ApiError
from tarragon.client.informer.cache_reader import KeyIndex
from tarragon.client.informer.informer import Informer
from tarragon.client.port import Client
from tarragon.kube.meta import Key, OwnerIdentity, Resource
from tarragon.kube.selectors import label_selector_as_predicate
from tarragon.localcluster.controllers.caches import logged_cache
from tarragon.localcluster.controllers.reconcile_queue import Reconcile, ReconcileQueue
from tarragon.localcluster.controllers.workloads.model import HasMetadata, Owner
from tarragon.localcluster.controllers.workloads.pods import PODS, Pod

T = TypeVar("T", bound=Owner)
U = TypeVar("U")
V = TypeVar("V", bound=HasMetadata)

log = structlog.get_logger(__name__)

UNEXPECTED_ERROR_SECONDS = 60.0
"""Until an object whose reconciliation raised an unexpected error is retried, unless it changes before."""
REQUEUE_SECONDS = 1.0
"""Until an object is reconciled again when the cache has not shown a write of its controller."""


class WorkloadContext:
    """Shared by all workload controllers, so that pods are cached once."""

    def __init__(self, cluster: Client, clock: Clock, jitter: random.Random) -> None:
        self.cluster = cluster
        self.clock = clock
        self.jitter = jitter
        self.pods = self.cache(PODS)
        self._by_owner = KeyIndex(self.pods, owners)
        self._orphans = KeyIndex(
            self.pods, lambda pod: [] if pod.metadata.controller_identity else [pod.metadata.namespace]
        )

    def cache(self, resource: Resource[U]) -> Informer[U]:
        return logged_cache(self.cluster, resource, self.clock, self.jitter)

    def owned(self, owner: OwnerIdentity) -> list[Pod]:
        """The pods that the object controls, sorted by name."""
        return self._pods_at(self._by_owner.keys(owner))

    def orphans(self, namespace: str) -> list[Pod]:
        """Pods of the namespace that have no controller."""
        return self._pods_at(self._orphans.keys(namespace))

    def _pods_at(self, keys: Iterable[Key]) -> list[Pod]:
        return [self.pods.objects[key] for key in sorted(keys)]


class ReconciledCache(Generic[T]):
    """The cached objects of one kind, reconciled when they or their dependents change."""

    def __init__(self, context: WorkloadContext, resource: Resource[T]) -> None:
        self.resource = resource
        self.cache: Informer[T] = context.cache(resource)
        self.queue: ReconcileQueue[Key] = ReconcileQueue(context.clock)
        self.cache.add_event_handler(self._follow)

    async def run(self, reconcile: Reconcile[Key]) -> None:
        """Reconcile the objects until cancelled. An unexpected error in one of them does not hold up the others."""

        async def contained(key: Key) -> float | None:
            try:
                return await reconcile(key)
            except ApiError:
                raise
            except Exception:  # for instance a malformed value that a client wrote into a status
                log.exception("a workload cannot be looked after", kind=self.resource.kind, key=str(key))
                return UNEXPECTED_ERROR_SECONDS

        await self.queue.run(contained)

    def follow(self, parts: Informer[V]) -> None:
        """Reconcile an object when a dependent of it changes, or when there is an orphan that it could adopt."""
        parts.add_event_handler(self._follow_part)

    def get(self, key: Key) -> T | None:
        return self.cache.objects.get(key)

    def controller_of(self, part: HasMetadata) -> T | None:
        """The object of this kind that controls the dependent, if there is one."""
        owner = part.metadata.controller_identity
        found = self.cache.objects.get(owner.key) if owner is not None else None
        return found if found is not None and self.resource.owner_identity(found.metadata) == owner else None

    def _follow(self, key: Key, _old: T | None, _new: T | None) -> None:
        self.queue.add(key)

    def _follow_part(self, key: Key, old: V | None, new: V | None) -> None:
        for part in (old, new):
            if part is not None and (owner := self.controller_of(part)) is not None:
                self.queue.add(owner.metadata.key)
        if new is not None and new.metadata.controller_identity is None:
            for candidate in self._selecting(key.namespace, new):
                self.queue.add(candidate)

    def _selecting(self, namespace: str, part: HasMetadata) -> list[Key]:
        items = self.cache.objects.items()
        return [key for key, owner in items if key.namespace == namespace and selects(owner)(part)]


def owners(thing: HasMetadata) -> Iterator[OwnerIdentity]:
    """The object's controller, if it has one: the key function of an index by owner."""
    owner = thing.metadata.controller_identity
    if owner is not None:
        yield owner


def selects(owner: Owner) -> Callable[[HasMetadata], bool]:
    """A predicate for the owner's selector. An empty selector selects nothing."""
    selector = owner.selector
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        return lambda _: False
    holds = label_selector_as_predicate(selector)
    return lambda part: holds(part.metadata.labels)


class Expectations(Generic[V]):
    """Expectations: writes that a cache has not shown yet. Until it does, their owner is not reconciled.

    Resource versions are compared as numbers, which Kubernetes guarantees since 1.35 and this server always has.
    """

    def __init__(self, cache: Informer[V]) -> None:
        self._cache = cache
        self._versions: dict[str, int] = {}
        self._leaving: dict[str, dict[str, Key]] = {}

    def expect_version(self, owner: str, version: str) -> None:
        """Expect the cache to reach the version that a create or update of a dependent returned."""
        self._versions[owner] = max(int(version or 0), self._versions.get(owner, 0))

    def expect_deletion(self, owner: str, part: V) -> None:
        self._leaving.setdefault(owner, {})[part.metadata.uid] = part.metadata.key

    def is_satisfied(self, owner: str) -> bool:
        if self._versions.get(owner, 0) > self._cache.last_resource_version:
            return False
        self._versions.pop(owner, None)
        leaving = {uid: key for uid, key in self._leaving.pop(owner, {}).items() if self._is_there(uid, key)}
        if leaving:
            self._leaving[owner] = leaving
        return not leaving

    def _is_there(self, uid: str, key: Key) -> bool:
        part = self._cache.objects.get(key)
        return part is not None and part.metadata.uid == uid and not part.metadata.is_being_deleted
