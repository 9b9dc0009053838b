"""Binds persistent volume claims at once: their volumes are folders that the kubelet creates."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from tarragon.base.clock import Clock
from tarragon.client.errors import NotFound
from tarragon.client.port import Client
from tarragon.kube.core import PERSISTENT_VOLUME_CLAIMS
from tarragon.kube.meta import CustomObject, Key
from tarragon.localcluster.controllers.caches import logged_cache
from tarragon.localcluster.controllers.reconcile_queue import ReconcileQueue


class ClaimController:
    """Sets the phase Bound with the requested size and access modes. It creates no PersistentVolumes."""

    def __init__(self, cluster: Client, clock: Clock, jitter: random.Random) -> None:
        self._cluster = cluster
        self._claims = logged_cache(cluster, PERSISTENT_VOLUME_CLAIMS.with_model(CustomObject), clock, jitter)
        self._queue: ReconcileQueue[Key] = ReconcileQueue(clock)
        self._claims.add_event_handler(self._follow)

    async def run(self) -> None:
        """Run until cancelled. Call it once."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._claims.run())
            tasks.create_task(self._queue.run(self._reconcile))

    def _follow(self, key: Key, _old: CustomObject | None, new: CustomObject | None) -> None:
        if new is not None:
            self._queue.add(key)

    async def _reconcile(self, key: Key) -> None:
        claim = self._claims.objects.get(key)
        if claim is None or claim.metadata.is_being_deleted:
            return
        wanted = _bound(_mapping(claim.spec))
        if all(_mapping(claim.status).get(name) == value for name, value in wanted.items()):
            return
        metadata = {"uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version}
        with suppress(NotFound):
            change = {"metadata": metadata, "status": wanted}
            await self._cluster.patch(PERSISTENT_VOLUME_CLAIMS, key, change, subresource="status")


def _bound(spec: Mapping[str, Any]) -> dict[str, Any]:
    requests = _mapping(_mapping(spec.get("resources")).get("requests"))
    return {"phase": "Bound", "accessModes": spec.get("accessModes") or ["ReadWriteOnce"], "capacity": dict(requests)}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
