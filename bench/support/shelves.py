"""A cluster that is a dictionary, and an operator's caches filled from it by hand: admission alone, without a server.

What is written is told to the caches at once, or when `tell` is called: a watch may lag.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from tarragon.base.clock import Clock
from tarragon.client.errors import Conflict, NotFound
from tarragon.client.informer.reflector import Cache
from tarragon.client.port import WatchEvent
from tarragon.frameworks.catalog import FRAMEWORKS
from tarragon.job.model import GENERATION_ANNOTATION
from tarragon.kube.codec import decode, encode
from tarragon.kube.core import NODES, PODS
from tarragon.kube.meta import Key, Resource
from tarragon.kube.patch import merged
from tarragon.operator.informers.informers import World
from tarragon.plan.objects.settings import Settings

T = TypeVar("T")
Json = dict[str, Any]
TFJOBS = FRAMEWORKS[0].resource


@dataclass(slots=True)
class Shelves:
    """`lags`: what happens is told by `tell`, not before."""

    clock: Clock
    lags: bool = False
    objects: dict[tuple[str, Key], Json] = field(default_factory=dict)
    worlds: list[World] = field(default_factory=list)
    patched: list[str] = field(default_factory=list)
    _version: int = 0
    _untold: list[tuple[str, WatchEvent[msgspec.Raw]]] = field(default_factory=list)

    def world(self) -> World:
        """One more of an operator, that sees what is there already."""
        world = World(self, FRAMEWORKS, self.clock, Settings(), random.Random(1))  # type: ignore[arg-type]
        for (plural, _), found in self.objects.items():
            self._tell(world, plural, _event("ADDED", found))
        self.worlds.append(world)
        return world

    def put(self, resource: Resource[Any], body: Json) -> None:
        """Made, or changed to this."""
        metadata = body["metadata"]
        key = Key(metadata.get("namespace", ""), metadata["name"])
        known = self.objects.get((resource.plural, key))
        self._version += 1
        uid = known["metadata"]["uid"] if known is not None else f"uid-{self._version}"
        whole = {**body, "metadata": {"uid": uid, **metadata, "resourceVersion": str(self._version)}}
        self.objects[resource.plural, key] = whole
        self._happened(resource.plural, _event("ADDED" if known is None else "MODIFIED", whole))

    def remove(self, resource: Resource[Any], key: Key) -> None:
        self._version += 1
        found = self.objects.pop((resource.plural, key))
        found["metadata"] = {**found["metadata"], "resourceVersion": str(self._version)}
        self._happened(resource.plural, _event("DELETED", found))

    async def patch(
        self,
        resource: Resource[T],
        key: Key,
        patch: Mapping[str, Any],
        *,
        subresource: str = "",  # noqa: ARG002 - as in Cluster
    ) -> T:
        """What the operator writes."""
        known = self.objects.get((resource.plural, key))
        if known is None:
            raise NotFound({"message": f"{resource.plural} {key} not found"})
        if patch["metadata"]["resourceVersion"] != known["metadata"]["resourceVersion"]:
            raise Conflict({"message": f"{resource.plural} {key} has been modified"})
        self.patched.append(key.name)
        self.put(resource, merged(known, patch))
        return decode(encode(self.objects[resource.plural, key]), resource.model)

    def tell(self) -> None:
        """All that has happened and was not told yet."""
        untold, self._untold = self._untold, []
        for plural, event in untold:
            for world in self.worlds:
                self._tell(world, plural, event)

    def _happened(self, plural: str, event: WatchEvent[msgspec.Raw]) -> None:
        self._untold.append((plural, event))
        if not self.lags:
            self.tell()

    def _tell(self, world: World, plural: str, event: WatchEvent[msgspec.Raw]) -> None:
        version = None if event.object is None else decode(bytes(event.object), dict).get("apiVersion")
        for cache in world.caches:
            if cache.resource.plural != plural or version not in {None, cache.resource.api_version}:
                continue  # Kinds of two groups may bear one plural.
            if isinstance(cache, Cache):
                cache._take(event)  # noqa: SLF001 - as its watch would


def _event(kind: Any, body: Json) -> WatchEvent[msgspec.Raw]:
    return WatchEvent(kind, body["metadata"]["resourceVersion"], msgspec.Raw(encode(body)))


def a_node(name: str, *, ready: bool = True, labels: Mapping[str, str] | None = None, **amounts: str) -> Json:
    allocatable = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8", **amounts}
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "status": {"allocatable": allocatable, "conditions": conditions},
    }


def a_job(name: str, *, workers: int, namespace: str = "default", gpus: int = 1, **spec: Any) -> Json:
    """Marked, as the reconciler has done it by then."""
    requests = {"cpu": "4", "memory": "16Gi", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    container = {"name": "tensorflow", "image": "i", "command": ["true"], "resources": {"limits": requests}}
    group = {"replicas": workers, "restartPolicy": "OnFailure", "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": TFJOBS.api_version,
        "kind": TFJOBS.kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {GENERATION_ANNOTATION: "kubeflow.org/v1"},
        },
        "spec": {"tfReplicaSpecs": {"Worker": group}, **spec},
    }


def a_pod(job: Json, replica: str, node: str, **status: Any) -> Json:
    """Of a job that is there: `worker-0` of it."""
    metadata = job["metadata"]
    kind, _, _ = replica.partition("-")
    groups = {name.lower(): group for name, group in job["spec"]["tfReplicaSpecs"].items()}
    owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": metadata["name"], "controller": True}
    return {
        "metadata": {
            "name": f"{metadata['name']}-{replica}",
            "namespace": metadata["namespace"],
            "ownerReferences": [{**owner, "uid": metadata["uid"]}],
        },
        "spec": {**groups[kind]["template"]["spec"], "nodeName": node},
        "status": {"phase": "Running", **status},
    }


__all__ = ["NODES", "PODS", "TFJOBS", "Shelves", "a_job", "a_node", "a_pod"]
