"""Everything the operator knows of the cluster: one cache a kind, and who belongs to whom. All reading is here."""

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
"""Nodes that may suddenly not be read any more count as last seen for this long: a role may just be made anew."""

T = TypeVar("T")


class _Tried:
    """Whether a cache has been filled, or the server would not let it be."""

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
        waits = [asyncio.ensure_future(self.cache.synced()), asyncio.ensure_future(self._failed.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()


class World:
    """Live copies of jobs, pods, services and nodes. `run` of every cache must be running for them to be so."""

    def __init__(
        self, cluster: Cluster, frameworks: Sequence[Framework], clock: Clock, settings: Settings, jitter: random.Random
    ) -> None:
        self.frameworks: Mapping[str, Framework] = {framework.kind: framework for framework in frameworks}

        def copy(resource: Resource[T]) -> Live[T]:
            where = settings.namespaces if resource.namespaced and settings.namespaces else [""]
            return joined(
                {each: Cache(cluster, resource, clock, Selection(namespace=each), jitter=jitter) for each in where}
            )

        self.jobs: Mapping[str, Live[CustomObject]] = {
            framework.kind: copy(framework.resource.reading(KeptJob)) for framework in frameworks
        }
        self.pods: Live[Pod] = copy(PODS.reading(KeptPod))
        self.services: Live[Service] = copy(SERVICES.reading(KeptService))
        self.nodes: Live[Node] = copy(NODES)
        self._clock = clock
        self._pods_of = Index(self.pods, controllers)
        self._services_of = Index(self.services, controllers)
        self._cleared_for = Index(self.pods, cleared_nodes)
        self._claims: Live[PersistentVolumeClaim] = copy(PERSISTENT_VOLUME_CLAIMS.reading(PersistentVolumeClaim))
        self._volumes: Live[PersistentVolume] = copy(PERSISTENT_VOLUMES)
        self._classes: Live[StorageClass] = copy(STORAGE_CLASSES)
        self.priorities: Live[PriorityClass] = copy(PRIORITY_CLASSES)
        wanted = dict.fromkeys(settings.pod_groups.values())
        self.pod_groups: Sequence[Live[PodGroup]] = [copy(KINDS[name].resource) for name in wanted]
        optional = (self.jobs[framework.kind] for framework in frameworks if framework.is_optional)
        self._kinds_tried = [*map(_Tried, optional), *map(_Tried, self.pod_groups)]
        self._tried = [_Tried(cache) for cache in (self.nodes, *self.optional)]
        written: list[Live[Json]] = [*self.jobs.values(), self.pods, self.services, *self.pod_groups]
        self._written = {cache.resource.full_name: cache for cache in written}
        self.settings = settings
        self.unmade = Unmade(self.pods, clock)
        self.refusals = Refusals()
        self.verified = Verified()
        self.readings = Readings(self.frameworks)
        for kind, cache in self.jobs.items():
            cache.subscribe(partial(self.readings.changed, kind))

    @property
    def caches(self) -> Sequence[Live[Json]]:
        """Those to run. Of nodes nothing is asked where only some namespaces' pods are seen."""
        kinds = [tried.cache for tried in self._kinds_tried]
        return [*self._necessary, *kinds, *([] if self.settings.namespaces else [self.nodes, *self.optional])]

    @property
    def optional(self) -> Sequence[Live[Json]]:
        """Who may not read the priorities holds all jobs for equally urgent."""
        return [*self.of_storage, self.priorities]

    @property
    def of_storage(self) -> Sequence[Live[Json]]:
        """Who may not read these leaves more to kube-scheduler."""
        return [self._claims, self._volumes, self._classes]

    def is_to_be_expected(self, trouble: Trouble) -> bool:
        """A kind that a cluster may do without is not installed, or an older role knows nothing of it.

        A role that is taken away from one whose jobs we know is another matter.
        """
        may_lack = {tried.cache.resource.full_name: tried.cache for tried in self._kinds_tried}
        cache = may_lack.get(trouble.resource)
        if cache is None:
            return False
        is_unknown = isinstance(trouble.error, Forbidden) and not cache.is_synced
        return is_unknown or isinstance(trouble.error, NotFound)

    @property
    def storage(self) -> Storage:
        return Storage(claims=self._claims.objects, volumes=self._volumes.objects, classes=self._classes.objects)

    @property
    def missing(self) -> Sequence[str]:
        """Kinds that are still to be listed. Nothing may be decided before: a pod not seen yet would be made again."""
        missing = [cache for cache in self._necessary if not cache.is_synced]
        missing += [tried.cache for tried in self._to_try if not tried.is_over]
        return [cache.resource.full_name for cache in missing]

    async def synced(self) -> None:
        """Return when nothing is `missing`."""
        for cache in self._necessary:
            await cache.synced()
        for tried in self._to_try:
            await tried.over()

    @property
    def places_gangs(self) -> bool:
        """Whether we find the places: that takes the whole picture, all nodes and all pods. Else others do.

        Where everything is forbidden, as without any role, nodes are no case of their own.
        """
        if self.settings.namespaces:
            return False
        failing = self.nodes.failing
        if failing is None or not _is_refusal(failing.error):
            return True
        if any(cache.failing is not None for cache in self._necessary):
            return True
        recovered = max(cache.recovered for cache in self._necessary)
        is_news = self.nodes.is_synced or recovered > failing.since
        return is_news and self._clock.monotonic() - max(failing.since, recovered) < FORBIDDEN_SECONDS

    @property
    def _necessary(self) -> Sequence[Live[Json]]:
        kinds = [kind for kind, framework in self.frameworks.items() if not framework.is_optional]
        return [*(self.jobs[kind] for kind in kinds), self.pods, self.services]

    @property
    def _to_try(self) -> Sequence[_Tried]:
        """A kind that is installed, or allowed, later than the operator is looked after from then on."""
        return [*self._kinds_tried, *([] if self.settings.namespaces else self._tried)]

    def making(self, kind: str, body: Mapping[str, object]) -> AbstractContextManager[None]:
        """Around a request to make this object; `kind` is its full name."""
        return self.unmade.making(body) if kind == self.pods.resource.full_name else nullcontext()

    def learn(self, kind: str, found: bytes) -> None:
        """The server has answered a write with this object; `kind` is its full name."""
        cache = self._written.get(kind)
        if cache is not None:
            cache.learn(found)

    def observe(self, kind: str, key: Key) -> Observed | None:
        """One job with everything of its, or None when it is gone."""
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
        """Whether the job's admission counts. Where the scheduler places nothing, it judges no admission either.

        One that is seen for the first time is proved by any pod of the job: the scheduler would not say otherwise.
        """
        job = kind, observed.object.metadata.key
        if not self.places_gangs or self.verified.counts(job, observed.object):
            return True
        return self.verified.known(job, observed.object.metadata.uid) is None and _has_replicas(observed)

    def is_placed_as(self, kind: str, seen: CustomObject) -> bool:
        """Whether the job is still there, and has the places that it had when it was seen."""
        now = self.jobs[kind].objects.get(seen.metadata.key)
        if now is None or now.metadata.uid != seen.metadata.uid:
            return False
        return now is seen or raw_admission(now.status).get("nodes") == raw_admission(seen.status).get("nodes")

    def is_cleared(self, node: str) -> bool:
        """Whether kube-scheduler sends pods away from there to make room for another one."""
        return self._cleared_for.count(node) > 0

    def pods_of(self, job: CustomObject) -> Sequence[Pod]:
        """Its pods by name, ending ones included."""
        return [self.pods.objects[name] for name in sorted(self._pods_of.keys(job.as_owner))]

    def job_of(self, owned: ObjectMeta) -> JobId | None:
        """The job that an object names as its controller: there may be none, or another one that has its name now."""
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
