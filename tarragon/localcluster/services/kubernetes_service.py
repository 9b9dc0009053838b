"""The service `kubernetes` in the namespace `default`, by which the API server of any cluster is found."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Any

from tarragon.base.clock import Clock
from tarragon.client.errors import AlreadyExists, NotFound
from tarragon.client.port import Cluster, Selection
from tarragon.kube.core import ENDPOINTS, SERVICES
from tarragon.kube.meta import AnyObject, Key, Resource
from tarragon.localcluster.controllers.caches import logged_cache
from tarragon.localcluster.controllers.workqueue import Worklist

KEY = Key("default", "kubernetes")
_PORT = 443
_LABELS = {"component": "apiserver", "provider": "kubernetes"}


class KubernetesService:
    """Makes it, and makes it again when somebody deletes it. `port` is where the API server listens."""

    def __init__(self, cluster: Cluster, port: int, clock: Clock, jitter: random.Random) -> None:
        self._cluster = cluster
        self._port = port
        mine = Selection(namespace=KEY.namespace, fields=f"metadata.name={KEY.name}")
        kinds = (SERVICES.reading(AnyObject), ENDPOINTS)
        self._caches = [logged_cache(cluster, kind, clock, jitter, mine) for kind in kinds]
        self._worklist: Worklist[str] = Worklist(clock, jitter)
        for cache in self._caches:
            cache.subscribe(lambda _key, _old, new: None if new else self._worklist.add(KEY.name))

    async def run(self) -> None:
        """For ever, until cancelled. Call it once."""
        async with asyncio.TaskGroup() as tasks:
            for cache in self._caches:
                tasks.create_task(cache.run())
            self._worklist.add(KEY.name)
            tasks.create_task(self._worklist.run(self._look))

    async def _look(self, _: str) -> None:
        port = {"name": "https", "port": _PORT, "protocol": "TCP", "targetPort": self._port}
        await self._keep(SERVICES.reading(AnyObject), {"spec": {"ports": [port]}})
        address = {"ip": "127.0.0.1"}
        ports = [{"name": "https", "port": self._port, "protocol": "TCP"}]
        await self._keep(ENDPOINTS, {"subsets": [{"addresses": [address], "ports": ports}]})

    async def _keep(self, resource: Resource[AnyObject], content: dict[str, Any]) -> None:
        metadata = {"name": KEY.name, "namespace": KEY.namespace}
        labels = _LABELS if resource.kind == SERVICES.kind else {}
        try:
            await self._cluster.create(resource, {"metadata": {**metadata, "labels": labels}, **content})
        except AlreadyExists:
            with suppress(NotFound):
                await self._cluster.patch(resource, KEY, content)
