"""The pod garbage collector, which fails and deletes pods on nodes that no longer exist."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from tarragon.base.clock import Clock
from tarragon.client.errors import Conflict, NotFound
from tarragon.client.informer.cache_reader import KeyIndex
from tarragon.client.port import Client, DeleteOptions
from tarragon.kube.codec import format_time
from tarragon.kube.core import NODES, PODS, MinimalMeta
from tarragon.kube.meta import Key, PartialObject, PartialObjectMetadata
from tarragon.localcluster.controllers.caches import logged_cache
from tarragon.localcluster.controllers.reconcile_queue import ReconcileQueue

QUARANTINE_SECONDS = 40.0
"""How long a node must be missing: it may be registered again, or the cache of nodes may lag behind that of pods."""


class Named(PartialObject, frozen=True):
    metadata: MinimalMeta = MinimalMeta()


class Spec(PartialObject, frozen=True):
    node_name: str = ""


class Bound(PartialObject, frozen=True):
    """The fields of a pod that the controller needs."""

    metadata: MinimalMeta = MinimalMeta()
    spec: Spec = Spec()


BOUND_PODS = PODS.with_model(Bound)
NAMED_NODES = NODES.with_model(Named)


class PodGarbageCollector:
    """Marks unfinished pods of missing nodes as failed, and deletes all of them without grace, as Kubernetes does."""

    def __init__(self, cluster: Client, clock: Clock, jitter: random.Random) -> None:
        self._cluster = cluster
        self._clock = clock
        self._pods = logged_cache(cluster, BOUND_PODS, clock, jitter)
        self._nodes = logged_cache(cluster, NAMED_NODES, clock, jitter)
        self._pods_on = KeyIndex(self._pods, _node_of)
        self._missed: dict[str, float] = {}
        """Since when each node has been missing, in monotonic seconds."""
        self._queue: ReconcileQueue[str] = ReconcileQueue(clock)
        self._pods.add_event_handler(self._pod_changed)
        self._nodes.add_event_handler(lambda key, _old, _new: self._queue.add(key.name))

    async def run(self) -> None:
        """Run until cancelled. Call it once."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pods.run())
            tasks.create_task(self._nodes.run())
            await self._pods.wait_for_sync()
            await self._nodes.wait_for_sync()
            tasks.create_task(self._queue.run(self._reconcile))

    def _pod_changed(self, _: Key, __: Bound | None, new: Bound | None) -> None:
        if new is not None and new.spec.node_name and not self._is_there(new.spec.node_name):
            self._queue.add(new.spec.node_name)

    def _is_there(self, node: str) -> bool:
        return Key("", node) in self._nodes.objects

    async def _reconcile(self, node: str) -> float | None:
        pods = [self._pods.objects[key].metadata for key in sorted(self._pods_on.keys(node))]
        if self._is_there(node) or not pods:
            self._missed.pop(node, None)
            return None
        now = self._clock.monotonic()
        left = self._missed.setdefault(node, now) + QUARANTINE_SECONDS - now
        if left > 0:
            return left
        for pod in pods:
            with suppress(NotFound, Conflict):  # it is gone, or was replaced by another pod of its name
                await self._end(pod.key, pod.uid)
        self._missed.pop(node, None)
        return None

    async def _end(self, key: Key, uid: str) -> None:
        pod = await self._cluster.get(PODS.with_model(dict), key)
        status: dict[str, Any] = pod.get("status") or {}
        if status.get("phase") not in {"Succeeded", "Failed"}:
            others = [each for each in status.get("conditions") or [] if each.get("type") != "DisruptionTarget"]
            condition = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "DeletionByPodGC",
                "message": "PodGC: node no longer exists",
                "lastTransitionTime": format_time(self._clock.now()),
            }
            patch = {"metadata": {"uid": uid}, "status": {"phase": "Failed", "conditions": [*others, condition]}}
            await self._cluster.patch(PODS.with_model(PartialObjectMetadata), key, patch, subresource="status")
        await self._cluster.delete(PODS, key, DeleteOptions(uid=uid, grace_period_seconds=0))


def _node_of(pod: Bound) -> Iterator[str]:
    if pod.spec.node_name:
        yield pod.spec.node_name
