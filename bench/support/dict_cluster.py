"""A cluster in a dictionary, which fills an operator's caches directly, for measuring scheduling without an API server.

Caches see a write immediately, or with `is_lagging` at the next call of `deliver_events`, like a slow watch.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from tarragon.base.clock import Clock
from tarragon.client.errors import Conflict, NotFound
from tarragon.client.informer.informer import Informer
from tarragon.client.port import WatchEvent
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.job.model import GENERATION_ANNOTATION
from tarragon.kube.codec import decode, encode
from tarragon.kube.core import NODES, PODS
from tarragon.kube.merge_patch import apply_merge_patch
from tarragon.kube.meta import Key, Resource
from tarragon.operator.informers.informers import Informers
from tarragon.plan.objects.settings import OperatorSettings

T = TypeVar("T")
Json = dict[str, Any]
TFJOBS = FRAMEWORKS[0].resource


@dataclass(slots=True)
class DictCluster:
    """The objects of a cluster. With `is_lagging`, caches see changes only at the next call of `deliver_events`."""

    clock: Clock
    is_lagging: bool = False
    objects: dict[tuple[str, Key], Json] = field(default_factory=dict)
    informers: list[Informers] = field(default_factory=list)
    patched: list[str] = field(default_factory=list)
    _version: int = 0
    _pending_events: list[tuple[str, WatchEvent[msgspec.Raw]]] = field(default_factory=list)

    def new_informers(self) -> Informers:
        """The caches of another operator, filled with the existing objects."""
        world = Informers(self, FRAMEWORKS, self.clock, OperatorSettings(), random.Random(1))  # type: ignore[arg-type]
        for (plural, _), found in self.objects.items():
            self._tell(world, plural, _event("ADDED", found))
        self.informers.append(world)
        return world

    def put(self, resource: Resource[Any], body: Json) -> None:
        """Create or replace an object."""
        metadata = body["metadata"]
        key = Key(metadata.get("namespace", ""), metadata["name"])
        existing = self.objects.get((resource.plural, key))
        self._version += 1
        uid = existing["metadata"]["uid"] if existing is not None else f"uid-{self._version}"
        whole = {**body, "metadata": {"uid": uid, **metadata, "resourceVersion": str(self._version)}}
        self.objects[resource.plural, key] = whole
        self._record(resource.plural, _event("ADDED" if existing is None else "MODIFIED", whole))

    def remove(self, resource: Resource[Any], key: Key) -> None:
        self._version += 1
        found = self.objects.pop((resource.plural, key))
        found["metadata"] = {**found["metadata"], "resourceVersion": str(self._version)}
        self._record(resource.plural, _event("DELETED", found))

    async def create(self, resource: Resource[T], body: Mapping[str, Any]) -> T:
        """Accept an object of the operator: an event, which nobody reads."""
        return decode(encode(body), resource.model)

    async def patch(
        self,
        resource: Resource[T],
        key: Key,
        patch: Mapping[str, Any],
        *,
        subresource: str = "",  # noqa: ARG002 - as in Cluster
    ) -> T:
        """Apply a patch of the operator. Raises NotFound and Conflict."""
        existing = self.objects.get((resource.plural, key))
        if existing is None:
            raise NotFound({"message": f"{resource.plural} {key} not found"})
        if patch["metadata"]["resourceVersion"] != existing["metadata"]["resourceVersion"]:
            raise Conflict({"message": f"{resource.plural} {key} has been modified"})
        self.patched.append(key.name)
        self.put(resource, apply_merge_patch(existing, patch))
        return decode(encode(self.objects[resource.plural, key]), resource.model)

    def deliver_events(self) -> None:
        """Deliver all pending changes to the caches."""
        events, self._pending_events = self._pending_events, []
        for plural, event in events:
            for world in self.informers:
                self._tell(world, plural, event)

    def _record(self, plural: str, event: WatchEvent[msgspec.Raw]) -> None:
        self._pending_events.append((plural, event))
        if not self.is_lagging:
            self.deliver_events()

    def _tell(self, world: Informers, plural: str, event: WatchEvent[msgspec.Raw]) -> None:
        version = None if event.object is None else decode(bytes(event.object), dict).get("apiVersion")
        for cache in world.caches:
            if cache.resource.plural != plural or version not in {None, cache.resource.api_version}:
                continue  # Kinds of two groups may have the same plural.
            if isinstance(cache, Informer):
                cache._take(event)  # noqa: SLF001 - as its watch does


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
    """A job with the annotation that the reconciler sets before it is scheduled."""
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
    """The pod of a replica, such as `worker-0`, of an existing job."""
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


__all__ = ["NODES", "PODS", "TFJOBS", "DictCluster", "a_job", "a_node", "a_pod"]
