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
from tarragon.client.informer.cache_reader import CacheError, CacheReader, KeyIndex
from tarragon.client.informer.informer import Informer
from tarragon.client.informer.multi_namespace_cache import combine_caches
from tarragon.client.port import Client, Selector
from tarragon.frameworks.dialect_detection import recorded_generation
from tarragon.frameworks.plugin import Framework
from tarragon.job.status import JobStatus
from tarragon.job.status_encoding import raw_admission
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
from tarragon.kube.meta import CustomObject, Json, Key, ObjectMeta, Resource
from tarragon.operator.informers.accepted_admissions import AcceptedAdmissions
from tarragon.operator.informers.assumed_pods import AssumedPods, JobId
from tarragon.operator.informers.cache_transforms import CachedJob, CachedPod, CachedService
from tarragon.operator.informers.candidates import candidate_from
from tarragon.operator.informers.controller_owner import controller_owner
from tarragon.operator.informers.create_backoff import CreateBackoff
from tarragon.operator.informers.decode_cache import DecodeCache
from tarragon.operator.informers.first_decisions import FirstDecisions
from tarragon.operator.informers.gpu_anchors import GpuAnchors
from tarragon.operator.informers.hami_gpu_choices import HamiGpuChoices
from tarragon.operator.informers.lost_records import LostRecords
from tarragon.operator.informers.owned_object_caches import OwnedObjectCaches
from tarragon.operator.informers.pod_gpus import PodGpus
from tarragon.operator.informers.pod_usage import nominated_nodes
from tarragon.operator.informers.vgpu_users import VgpuUsers
from tarragon.plan.nodes.storage import VolumeCache
from tarragon.plan.objects.podgroup_kinds import POD_GROUP_KINDS, PodGroup
from tarragon.plan.objects.settings import OperatorSettings
from tarragon.plan.reconcile.generation import needs_no_mark
from tarragon.plan.view.actions import ObservedJob

FORBIDDEN_GRACE_SECONDS = 60.0
"""Seconds for which cached nodes are still used after reads became forbidden: a role may just be replaced."""

T = TypeVar("T")


class _InitialSync:
    """Waits until a cache has synced, or until the server has refused to list it."""

    def __init__(self, cache: CacheReader[Json]) -> None:
        self.cache = cache
        self._failed = asyncio.Event()
        cache.on_error(lambda trouble: self._failed.set() if isinstance(trouble.error, Forbidden | NotFound) else None)

    @property
    def is_over(self) -> bool:
        return self.cache.has_synced or self._failed.is_set()

    async def over(self) -> None:
        tasks = [asyncio.ensure_future(self.cache.wait_for_sync()), asyncio.ensure_future(self._failed.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()


class Informers:
    """Caches of jobs, pods, services, nodes and optional kinds. They are live while `run` of each cache is running."""

    def __init__(
        self,
        cluster: Client,
        frameworks: Sequence[Framework],
        clock: Clock,
        settings: OperatorSettings,
        jitter: random.Random,
    ) -> None:
        self.frameworks: Mapping[str, Framework] = {framework.kind: framework for framework in frameworks}

        def cache_of(resource: Resource[T], labels: str = "") -> CacheReader[T]:
            where = settings.namespaces if resource.namespaced and settings.namespaces else [""]
            selectors = {each: Selector(namespace=each, label_selector=labels) for each in where}
            return combine_caches(
                {each: Informer(cluster, resource, clock, selectors[each], jitter=jitter) for each in where}
            )

        self.jobs: Mapping[str, CacheReader[CustomObject]] = {
            framework.kind: cache_of(framework.resource.with_model(CachedJob)) for framework in frameworks
        }
        self.pods: CacheReader[Pod] = cache_of(PODS.with_model(CachedPod))
        self.services: CacheReader[Service] = cache_of(SERVICES.with_model(CachedService))
        self.nodes: CacheReader[Node] = cache_of(NODES)
        self._clock = clock
        self._pods_of = KeyIndex(self.pods, controller_owner)
        self._services_of = KeyIndex(self.services, controller_owner)
        self._nominated_nodes = KeyIndex(self.pods, nominated_nodes)
        self._claims: CacheReader[PersistentVolumeClaim] = cache_of(
            PERSISTENT_VOLUME_CLAIMS.with_model(PersistentVolumeClaim)
        )
        self._volumes: CacheReader[PersistentVolume] = cache_of(PERSISTENT_VOLUMES)
        self._classes: CacheReader[StorageClass] = cache_of(STORAGE_CLASSES)
        self.priority_classes: CacheReader[PriorityClass] = cache_of(PRIORITY_CLASSES)
        self.pod_groups: Sequence[CacheReader[PodGroup]] = [
            cache_of(POD_GROUP_KINDS[name].resource) for name in settings.pod_group_kinds
        ]
        self.owned_objects = OwnedObjectCaches(frameworks, cache_of)
        optional: list[CacheReader[Json]] = [self.jobs[each.kind] for each in frameworks if each.is_crd_optional]
        self._optional_kind_syncs = [
            *map(_InitialSync, optional),
            *map(_InitialSync, self.pod_groups),
            *map(_InitialSync, self.owned_objects.all),
        ]
        self._cluster_wide_syncs = [_InitialSync(cache) for cache in (self.nodes, *self.cluster_wide_caches)]
        kinds: list[CacheReader[Json]] = [self.pods, self.services, *self.pod_groups, *self.owned_objects.all]
        self._writable = {cache.resource.full_name: cache for cache in (*self.jobs.values(), *kinds)}
        self.settings = settings
        self.assumed_pods = AssumedPods(self.pods, clock)
        self.create_backoff = CreateBackoff()
        self.accepted_admissions = AcceptedAdmissions()
        self.first_decisions = FirstDecisions()
        self.pod_gpus = self._pod_gpus()
        self.decode_cache, self._lost_records = self._job_records()

    def _job_records(self) -> tuple[DecodeCache, LostRecords]:
        decoded, lost = DecodeCache(self.frameworks), LostRecords()
        for kind, cache in self.jobs.items():
            cache.add_event_handler(partial(decoded.on_job_change, kind))
            cache.add_event_handler(lost.on_job_change)
        return decoded, lost

    def _pod_gpus(self) -> PodGpus:
        space = self.settings.anchor_namespace
        users = VgpuUsers(space, self.pods, self.jobs, self.assumed_pods, self.accepted_admissions)
        return PodGpus(
            GpuAnchors(space, self.pods, self.nodes, users),
            HamiGpuChoices(self.pods, self.nodes, self.assumed_pods, self._clock),
        )

    @property
    def caches(self) -> Sequence[CacheReader[Json]]:
        """The caches to run. Cluster-wide kinds are left out if only some namespaces are watched."""
        kinds = [sync.cache for sync in self._optional_kind_syncs]
        return [*self._required, *kinds, *([] if self.settings.namespaces else [self.nodes, *self.cluster_wide_caches])]

    @property
    def gpu_anchors(self) -> GpuAnchors:
        return self.pod_gpus.anchors

    @property
    def cluster_wide_caches(self) -> Sequence[CacheReader[Json]]:
        """Cluster-wide kinds that the operator can do without; without PriorityClasses all jobs have equal priority."""
        return [*self.storage_caches, self.priority_classes]

    @property
    def storage_caches(self) -> Sequence[CacheReader[Json]]:
        """Storage kinds; without them, pods with claims are left to kube-scheduler."""
        return [self._claims, self._volumes, self._classes]

    def is_expected_error(self, trouble: CacheError) -> bool:
        """Whether the error means that an optional kind is not installed, or not covered by an older role.

        A permission that is revoked after the cache has synced is not expected.
        """
        optional = {sync.cache.resource.full_name: sync.cache for sync in self._optional_kind_syncs}
        cache = optional.get(trouble.resource)
        if cache is None:
            return False
        was_never_permitted = isinstance(trouble.error, Forbidden) and not cache.has_synced
        return was_never_permitted or isinstance(trouble.error, NotFound)

    @property
    def storage(self) -> VolumeCache:
        return VolumeCache(claims=self._claims.objects, volumes=self._volumes.objects, classes=self._classes.objects)

    @property
    def unsynced_kinds(self) -> Sequence[str]:
        """Kinds that have not been listed yet. No decision may be made before: an unseen pod would be created again."""
        missing = [cache for cache in self._required if not cache.has_synced]
        missing += [sync.cache for sync in self._optional_syncs if not sync.is_over]
        return [cache.resource.full_name for cache in missing]

    async def wait_for_sync(self) -> None:
        """Wait until nothing is `missing`."""
        for cache in self._required:
            await cache.wait_for_sync()
        for sync in self._optional_syncs:
            await sync.over()

    @property
    def can_place_pods(self) -> bool:
        """Whether Tarragon places pods, which requires reading all nodes and all pods; otherwise kube-scheduler does.

        If a required kind fails as well, as without any role, the nodes' error alone says nothing: this stays True.
        """
        if self.settings.namespaces:
            return False
        failing = self.nodes.failure
        if failing is None or not _is_refusal(failing.error):
            return True
        if any(cache.failure is not None for cache in self._required):
            return True
        recovered = max(cache.recovered_at for cache in self._required)
        is_recent = self.nodes.has_synced or recovered > failing.since
        return is_recent and self._clock.monotonic() - max(failing.since, recovered) < FORBIDDEN_GRACE_SECONDS

    @property
    def _required(self) -> Sequence[CacheReader[Json]]:
        kinds = [kind for kind, framework in self.frameworks.items() if not framework.is_crd_optional]
        return [*(self.jobs[kind] for kind in kinds), self.pods, self.services]

    @property
    def _optional_syncs(self) -> Sequence[_InitialSync]:
        """Caches that may fail to sync; a kind installed or permitted later is used from then on."""
        return [*self._optional_kind_syncs, *([] if self.settings.namespaces else self._cluster_wide_syncs)]

    def expect_create(self, kind: str, body: Mapping[str, object]) -> AbstractContextManager[None]:
        """Context for a create request; `kind` is the resource's full name."""
        return self.assumed_pods.assume(body) if kind == self.pods.resource.full_name else nullcontext()

    def store_written(self, kind: str, found: bytes) -> None:
        """Store the object that the server returned from a write; `kind` is the resource's full name."""
        cache = self._writable.get(kind)
        if cache is not None:
            cache.apply_write(found)

    def observe(self, kind: str, key: Key) -> ObservedJob | None:
        """One job with its pods, services and other state, or None if it does not exist."""
        job = self.jobs[kind].objects.get(key)
        if job is None:
            return None
        return ObservedJob(
            object=job,
            decoded=self.decode_cache.decoded(kind, job),
            was_managed=job.metadata.uid in self._lost_records,
            pods=self.pods_of(job),
            services=[self.services.objects[name] for name in sorted(self._services_of.keys(job.owner_identity))],
            pods_by_key=self.pods.objects,
            services_by_key=self.services.objects,
            nodes=self.nodes.objects if self.can_place_pods else None,
            is_being_preempted=self.has_nominated_pods,
            find_gpus=partial(self.pod_gpus.find, (kind, key)),
            gpu_shortage=self.gpu_anchors.shortage,
            pod_groups={
                cache.resource.full_name: cache.objects[key] for cache in self.pod_groups if key in cache.objects
            },
            owned_objects=self.owned_objects.of_job(job.owner_identity),
            unreadable_kinds=self.owned_objects.unreadable_kinds(key.namespace),
            storage=self.storage,
            rejected_create=self.create_backoff.last_refusal(kind, key),
            was_gated=self.create_backoff.was_gated(kind, key),
            optional_retry_at=self.create_backoff.optional_retry_times(kind, key),
            settings=self.settings,
        )

    def is_admission_accepted(self, kind: str, observed: ObservedJob) -> bool:
        """Whether the reconciler may act on the job's admission. Always, if Tarragon places no pods.

        The admission of a job that is seen for the first time is accepted if the job has a pod, as in the scheduler.
        """
        job = kind, observed.object.metadata.key
        if not self.can_place_pods or self.accepted_admissions.is_accepted(job, observed.object):
            return True
        return self.accepted_admissions.get(job, observed.object.metadata.uid) is None and _has_replicas(observed)

    def awaits_first_decision(self, kind: str, observed: ObservedJob) -> bool:
        """Whether the job's first status is to be written by the scheduler, which has yet to look at the job."""
        found = observed.object
        if recorded_generation(found) is not None:
            return False
        framework = self.frameworks[kind]
        candidate = candidate_from(framework, found, observed.decoded, JobStatus(), self.settings)
        is_awaited = candidate is not None and needs_no_mark(framework, observed)
        return is_awaited and self.first_decisions.is_awaited((kind, found.metadata.key), found.metadata.uid)

    def may_create(self, kind: str, seen: CustomObject, body: Mapping[str, Json]) -> bool:
        """Whether an object that was decided on for the job in this state may be created now."""
        if not self.has_same_assignments(kind, seen):
            return False
        is_placed = bool(raw_admission(seen.status).get("nodes"))  # Others choose the GPUs of jobs that they place.
        return not is_placed or self.pod_gpus.are_current((kind, seen.metadata.key), body)

    def has_same_assignments(self, kind: str, seen: CustomObject) -> bool:
        """Whether the job still exists with the same assignments as in `seen`."""
        current = self.jobs[kind].objects.get(seen.metadata.key)
        if current is None or current.metadata.uid != seen.metadata.uid:
            return False
        return current is seen or raw_admission(current.status).get("nodes") == raw_admission(seen.status).get("nodes")

    def has_nominated_pods(self, node: str) -> bool:
        """Whether kube-scheduler preempts pods on the node for a pending pod."""
        return self._nominated_nodes.count(node) > 0

    def pods_of(self, job: CustomObject) -> Sequence[Pod]:
        """The job's pods sorted by name, terminating ones included."""
        return [self.pods.objects[name] for name in sorted(self._pods_of.keys(job.owner_identity))]

    def job_of(self, owned: ObjectMeta) -> JobId | None:
        """The job that an object names as its controller. It may not exist, or be a newer job of the same name."""
        owner = owned.controller_identity
        framework = None if owner is None else self.frameworks.get(owner.kind)
        if owner is None or framework is None or framework.resource.group != owner.group:
            return None
        return owner.kind, owner.key

    def all_jobs(self) -> Iterator[tuple[Framework, CustomObject]]:
        for kind, cache in self.jobs.items():
            for job in cache.objects.values():
                yield self.frameworks[kind], job


def _has_replicas(observed: ObservedJob) -> bool:
    job, dialect = observed.decoded.job, observed.decoded.dialect
    if job is None or dialect is None:
        return False
    return any(dialect.names.replica_of(job, pod.metadata.name) is not None for pod in observed.pods)


def _is_refusal(error: Exception) -> bool:
    return isinstance(error, Forbidden)
