"""Everything the operator knows of the cluster: one cache a kind, and who belongs to whom. All reading is here."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

from tarragon.base.clock import Clock
from tarragon.cluster.port import Cluster
from tarragon.cluster.reflector import Cache, Index
from tarragon.frameworks.plugin import Framework
from tarragon.kube.core import NODES, PODS, SERVICES, Node, Pod, Service
from tarragon.kube.meta import CustomObject, Json, Key
from tarragon.plan.step import Observed, Settings


class World:
    """Live copies of jobs, pods, services and nodes. `run` of every cache must be running for them to be so."""

    def __init__(
        self, cluster: Cluster, frameworks: Sequence[Framework], clock: Clock, settings: Settings, jitter: random.Random
    ) -> None:
        self.frameworks: Mapping[str, Framework] = {framework.kind: framework for framework in frameworks}
        self.jobs: Mapping[str, Cache[CustomObject]] = {
            framework.kind: Cache(cluster, framework.resource, clock, jitter=jitter) for framework in frameworks
        }
        self.pods: Cache[Pod] = Cache(cluster, PODS, clock, jitter=jitter)
        self.services: Cache[Service] = Cache(cluster, SERVICES, clock, jitter=jitter)
        self.nodes: Cache[Node] = Cache(cluster, NODES, clock, jitter=jitter)
        self._pods_of = Index(self.pods, owner_uids)
        self._services_of = Index(self.services, owner_uids)
        self.settings = settings

    @property
    def caches(self) -> Sequence[Cache[Json]]:
        return [*self.jobs.values(), self.pods, self.services, self.nodes]

    @property
    def is_synced(self) -> bool:
        """Nothing may be decided before: a pod that is not seen yet would be created again."""
        return all(cache.is_synced for cache in self.caches)

    def observe(self, kind: str, key: Key) -> Observed | None:
        """One job with everything of its, or None when it is gone."""
        job = self.jobs[kind].objects.get(key)
        if job is None:
            return None
        return Observed(
            object=job,
            pods=self.pods_of(job),
            services=[self.services.objects[name] for name in sorted(self._services_of.keys(job.metadata.uid))],
            settings=self.settings,
        )

    def pods_of(self, job: CustomObject) -> Sequence[Pod]:
        """Its pods by name, ending ones included."""
        return [self.pods.objects[name] for name in sorted(self._pods_of.keys(job.metadata.uid))]

    def all_jobs(self) -> Iterator[tuple[Framework, CustomObject]]:
        for kind, cache in self.jobs.items():
            for job in cache.objects.values():
                yield self.frameworks[kind], job


def owner_uids(owned: Pod | Service) -> Iterator[str]:
    """By the controller only: a second owner does not manage it."""
    owner = owned.metadata.controller
    if owner is not None:
        yield owner.uid
