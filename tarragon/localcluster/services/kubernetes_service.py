"""The controller of the Service `kubernetes` in the namespace `default`, which leads to the API server."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Any

from tarragon.base.clock import Clock
from tarragon.client.errors import AlreadyExists, NotFound
from tarragon.client.port import Client, Selector
from tarragon.kube.core import ENDPOINTS, SERVICES
from tarragon.kube.meta import Key, PartialObjectMetadata, Resource
from tarragon.localcluster.controllers.caches import logged_cache
from tarragon.localcluster.controllers.reconcile_queue import ReconcileQueue

KEY = Key("default", "kubernetes")
_PORT = 443
_LABELS = {"component": "apiserver", "provider": "kubernetes"}


class KubernetesServiceController:
    """Creates the Service, again after it is deleted. `port` is the port of the API server."""

    def __init__(self, cluster: Client, port: int, clock: Clock, jitter: random.Random) -> None:
        self._cluster = cluster
        self._port = port
        selection = Selector(namespace=KEY.namespace, field_selector=f"metadata.name={KEY.name}")
        kinds = (SERVICES.with_model(PartialObjectMetadata), ENDPOINTS)
        self._caches = [logged_cache(cluster, kind, clock, jitter, selection) for kind in kinds]
        self._queue: ReconcileQueue[str] = ReconcileQueue(clock)
        for cache in self._caches:
            cache.add_event_handler(lambda _key, _old, new: None if new else self._queue.add(KEY.name))

    async def run(self) -> None:
        """Run until cancelled. Call it once."""
        async with asyncio.TaskGroup() as tasks:
            for cache in self._caches:
                tasks.create_task(cache.run())
            self._queue.add(KEY.name)
            tasks.create_task(self._queue.run(self._reconcile))

    async def _reconcile(self, _: str) -> None:
        port = {"name": "https", "port": _PORT, "protocol": "TCP", "targetPort": self._port}
        await self._create_or_patch(SERVICES.with_model(PartialObjectMetadata), {"spec": {"ports": [port]}})
        address = {"ip": "127.0.0.1"}
        ports = [{"name": "https", "port": self._port, "protocol": "TCP"}]
        await self._create_or_patch(ENDPOINTS, {"subsets": [{"addresses": [address], "ports": ports}]})

    async def _create_or_patch(self, resource: Resource[PartialObjectMetadata], content: dict[str, Any]) -> None:
        metadata = {"name": KEY.name, "namespace": KEY.namespace}
        labels = _LABELS if resource.kind == SERVICES.kind else {}
        try:
            await self._cluster.create(resource, {"metadata": {**metadata, "labels": labels}, **content})
        except AlreadyExists:
            with suppress(NotFound):
                await self._cluster.patch(resource, KEY, content)
