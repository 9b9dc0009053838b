"""The operator's informers: one cache per kind with its indexes. All reads of the cluster go through here."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TypeVar

from tarragon.base.clock import Clock
from tarragon.client.errors import Forbidden, NotFound
from tarragon.client.informer.cache_reader import Index, Live, Trouble
from tarragon.client.informer.multi_namespace_cache import joined
from tarragon.client.informer.reflector import Cache
from tarragon.client.port import Cluster, Selection
from tarragon.frameworks.plugin import Framework
from tarragon.job.encoding import raw_admission
from tarragon.kube.core import (
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    PRIORITY_CLASSES,
    SERVICES,
    STORAGE_CLASSES,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PriorityClass,
    Service,
    StorageClass,
)
from tarragon.kube.meta import CustomObject, Json, Key, ObjectMeta, OwnerIdentity, Resource
from tarragon.operator.informers.cache_transforms import KeptJob, KeptPod, KeptService
from tarragon.operator.informers.decode_cache import Readings
from tarragon.operator.informers.expectations import JobId, Unmade
from tarragon.operator.informers.usage import cleared_nodes
from tarragon.operator.informers.verified_admissions import Verified
from tarragon.operator.queue.refused_writes import Refusals
from tarragon.plan.nodes.storage import Storage
from tarragon.plan.objects.podgroup_kinds import KINDS, PodGroup
from tarragon.plan.objects.settings import Settings
from tarragon.plan.view.actions import Observed

FORBIDDEN_SECONDS = 60.0
"""Seconds for which cached nodes are still used after reads became forbidden: a role may just be replaced."""

T = TypeVar("T")


class _InitialSync:
    """Waits until a cache has synced, or until the server has refused to list it."""

    def __init__(self, cache: Live[Json]) -> None:
        self.cache = cache
        self._failed = asyncio.Event()
        cache.on_trouble(
            lambda trouble: self._failed.set() if isinstance(trouble.error, Forbidden | NotFound) else None
        )

    @property
    def is_over(self) -> bool:
        return self.cache.is_synced or self._failed.is_set()

    async def over(self) -> None:
        tasks = [asyncio.ensure_future(self.cache.synced()), asyncio.ensure_future(self._failed.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()


class World:
    """Caches of jobs, pods, services, nodes and optional kinds. They are live while `run` of each cache is running."""

    def __init__(
        self, cluster: Cluster, frameworks: Sequence[Framework], clock: Clock, settings: Settings, jitter: random.Random
    ) -> None:
        self.frameworks: Mapping[str, Framework] = {framework.kind: framework for framework in frameworks}

        def cache_of(resource: Resource[T]) -> Live[T]:
            where = settings.namespaces if resource.namespaced and settings.namespaces else [""]
            return joined(
                {each: Cache(cluster, resource, clock, Selection(namespace=each), jitter=jitter) for each in where}
            )

        self.jobs: Mapping[str, Live[CustomObject]] = {
            framework.kind: cache_of(framework.resource.reading(KeptJob)) for framework in frameworks
        }
        self.pods: Live[Pod] = cache_of(PODS.reading(KeptPod))
        self.services: Live[Service] = cache_of(SERVICES.reading(KeptService))
        self.nodes: Live[Node] = cache_of(NODES)
        self._clock = clock
        self._pods_of = Index(self.pods, controllers)
        self._services_of = Index(self.services, controllers)
        self._nominated_nodes = Index(self.pods, cleared_nodes)
        self._claims: Live[PersistentVolumeClaim] = cache_of(PERSISTENT_VOLUME_CLAIMS.reading(PersistentVolumeClaim))
        self._volumes: Live[PersistentVolume] = cache_of(PERSISTENT_VOLUMES)
        self._classes: Live[StorageClass] = cache_of(STORAGE_CLASSES)
        self.priorities: Live[PriorityClass] = cache_of(PRIORITY_CLASSES)
        pod_group_kinds = dict.fromkeys(settings.pod_groups.values())
        self.pod_groups: Sequence[Live[PodGroup]] = [cache_of(KINDS[name].resource) for name in pod_group_kinds]
        optional = (self.jobs[framework.kind] for framework in frameworks if framework.is_optional)
        self._optional_kind_syncs = [*map(_InitialSync, optional), *map(_InitialSync, self.pod_groups)]
        self._cluster_wide_syncs = [_InitialSync(cache) for cache in (self.nodes, *self.optional)]
        writable: list[Live[Json]] = [*self.jobs.values(), self.pods, self.services, *self.pod_groups]
        self._writable = {cache.resource.full_name: cache for cache in writable}
        self.settings = settings
        self.unmade = Unmade(self.pods, clock)
        self.refusals = Refusals()
        self.verified = Verified()
        self.readings = Readings(self.frameworks)
        for kind, cache in self.jobs.items():
            cache.subscribe(partial(self.readings.changed, kind))

    @property
    def caches(self) -> Sequence[Live[Json]]:
        """The caches to run. Cluster-wide kinds are left out if only some namespaces are watched."""
        kinds = [sync.cache for sync in self._optional_kind_syncs]
        return [*self._required, *kinds, *([] if self.settings.namespaces else [self.nodes, *self.optional])]

    @property
    def optional(self) -> Sequence[Live[Json]]:
        """Cluster-wide kinds that the operator can do without; without PriorityClasses all jobs have equal priority."""
        return [*self.of_storage, self.priorities]

    @property
    def of_storage(self) -> Sequence[Live[Json]]:
        """Storage kinds; without them, pods with claims are left to kube-scheduler."""
        return [self._claims, self._volumes, self._classes]

    def is_to_be_expected(self, trouble: Trouble) -> bool:
        """Whether the error means that an optional kind is not installed, or not covered by an older role.

        A permission that is revoked after the cache has synced is not expected.
        """
        optional = {sync.cache.resource.full_name: sync.cache for sync in self._optional_kind_syncs}
        cache = optional.get(trouble.resource)
        if cache is None:
            return False
        was_never_permitted = isinstance(trouble.error, Forbidden) and not cache.is_synced
        return was_never_permitted or isinstance(trouble.error, NotFound)

    @property
    def storage(self) -> Storage:
        return Storage(claims=self._claims.objects, volumes=self._volumes.objects, classes=self._classes.objects)

    @property
    def missing(self) -> Sequence[str]:
        """Kinds that have not been listed yet. No decision may be made before: an unseen pod would be created again."""
        missing = [cache for cache in self._required if not cache.is_synced]
        missing += [sync.cache for sync in self._optional_syncs if not sync.is_over]
        return [cache.resource.full_name for cache in missing]

    async def synced(self) -> None:
        """Wait until nothing is `missing`."""
        for cache in self._required:
            await cache.synced()
        for sync in self._optional_syncs:
            await sync.over()

    @property
    def places_gangs(self) -> bool:
        """Whether Tarragon places pods, which requires reading all nodes and all pods; otherwise kube-scheduler does.

        If a required kind fails as well, as without any role, the nodes' error alone says nothing: this stays True.
        """
        if self.settings.namespaces:
            return False
        failing = self.nodes.failing
        if failing is None or not _is_refusal(failing.error):
            return True
        if any(cache.failing is not None for cache in self._required):
            return True
        recovered = max(cache.recovered for cache in self._required)
        is_recent = self.nodes.is_synced or recovered > failing.since
        return is_recent and self._clock.monotonic() - max(failing.since, recovered) < FORBIDDEN_SECONDS

    @property
    def _required(self) -> Sequence[Live[Json]]:
        kinds = [kind for kind, framework in self.frameworks.items() if not framework.is_optional]
        return [*(self.jobs[kind] for kind in kinds), self.pods, self.services]

    @property
    def _optional_syncs(self) -> Sequence[_InitialSync]:
        """Caches that may fail to sync; a kind installed or permitted later is used from then on."""
        return [*self._optional_kind_syncs, *([] if self.settings.namespaces else self._cluster_wide_syncs)]

    def making(self, kind: str, body: Mapping[str, object]) -> AbstractContextManager[None]:
        """Context for a create request; `kind` is the resource's full name."""
        return self.unmade.making(body) if kind == self.pods.resource.full_name else nullcontext()

    def learn(self, kind: str, found: bytes) -> None:
        """Store the object that the server returned from a write; `kind` is the resource's full name."""
        cache = self._writable.get(kind)
        if cache is not None:
            cache.learn(found)

    def observe(self, kind: str, key: Key) -> Observed | None:
        """One job with its pods, services and other state, or None if it does not exist."""
        job = self.jobs[kind].objects.get(key)
        if job is None:
            return None
        return Observed(
            object=job,
            taken=self.readings.of(kind, job),
            pods=self.pods_of(job),
            services=[self.services.objects[name] for name in sorted(self._services_of.keys(job.as_owner))],
            pods_there=self.pods.objects,
            services_there=self.services.objects,
            nodes=self.nodes.objects if self.places_gangs else None,
            is_cleared=self.is_cleared,
            pod_groups={
                cache.resource.full_name: cache.objects[key] for cache in self.pod_groups if key in cache.objects
            },
            storage=self.storage,
            refusal=self.refusals.of(kind, key),
            to_ask_again=self.refusals.to_ask_again(kind, key),
            settings=self.settings,
        )

    def may_act(self, kind: str, observed: Observed) -> bool:
        """Whether the reconciler may act on the job's admission. Always, if Tarragon places no pods.

        The admission of a job that is seen for the first time is accepted if the job has a pod, as in the scheduler.
        """
        job = kind, observed.object.metadata.key
        if not self.places_gangs or self.verified.counts(job, observed.object):
            return True
        return self.verified.known(job, observed.object.metadata.uid) is None and _has_replicas(observed)

    def is_placed_as(self, kind: str, seen: CustomObject) -> bool:
        """Whether the job still exists with the same assignments as in `seen`."""
        current = self.jobs[kind].objects.get(seen.metadata.key)
        if current is None or current.metadata.uid != seen.metadata.uid:
            return False
        return current is seen or raw_admission(current.status).get("nodes") == raw_admission(seen.status).get("nodes")

    def is_cleared(self, node: str) -> bool:
        """Whether kube-scheduler preempts pods on the node for a pending pod."""
        return self._nominated_nodes.count(node) > 0

    def pods_of(self, job: CustomObject) -> Sequence[Pod]:
        """The job's pods sorted by name, terminating ones included."""
        return [self.pods.objects[name] for name in sorted(self._pods_of.keys(job.as_owner))]

    def job_of(self, owned: ObjectMeta) -> JobId | None:
        """The job that an object names as its controller. It may not exist, or be a newer job of the same name."""
        owner = owned.controlled_by
        framework = None if owner is None else self.frameworks.get(owner.kind)
        if owner is None or framework is None or framework.resource.group != owner.group:
            return None
        return owner.kind, owner.key

    def all_jobs(self) -> Iterator[tuple[Framework, CustomObject]]:
        for kind, cache in self.jobs.items():
            for job in cache.objects.values():
                yield self.frameworks[kind], job


def _has_replicas(observed: Observed) -> bool:
    job, dialect = observed.taken.job, observed.taken.dialect
    if job is None or dialect is None:
        return False
    return any(dialect.names.replica(job, pod.metadata.name) is not None for pod in observed.pods)


def controllers(owned: Pod | Service) -> Iterator[OwnerIdentity]:
    """The controller only: a second owner does not manage the object."""
    owner = owned.metadata.controlled_by
    if owner is not None:
        yield owner


def _is_refusal(error: Exception) -> bool:
    return isinstance(error, Forbidden)
