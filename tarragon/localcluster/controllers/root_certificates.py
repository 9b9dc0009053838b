"""Publishes the ConfigMap `kube-root-ca.crt`, with which pods verify the API server, in every namespace."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

from tarragon.base.clock import Clock
from tarragon.client.errors import AlreadyExists, NotFound
from tarragon.client.port import Client, Selector
from tarragon.kube.core import CONFIG_MAPS, NAMESPACES
from tarragon.kube.meta import Key, ObjectMeta, PartialObject, PartialObjectMetadata
from tarragon.localcluster.controllers.caches import logged_cache
from tarragon.localcluster.controllers.reconcile_queue import ReconcileQueue

NAME = "kube-root-ca.crt"
FILE = "ca.crt"
_WORDS = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes "
    "clusters."
)


class _Bundle(PartialObject, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = {}


class RootCertificateController:
    """Creates the ConfigMap, and restores it after deletions and changes. `authority` is PEM."""

    def __init__(self, cluster: Client, authority: str, clock: Clock, jitter: random.Random) -> None:
        self._cluster = cluster
        self._authority = authority
        self._namespaces = logged_cache(cluster, NAMESPACES, clock, jitter)
        ours = Selector(field_selector=f"metadata.name={NAME}")
        self._bundles = logged_cache(cluster, CONFIG_MAPS.with_model(_Bundle), clock, jitter, ours)
        self._queue: ReconcileQueue[str] = ReconcileQueue(clock)
        self._namespaces.add_event_handler(self._follow_namespace)
        self._bundles.add_event_handler(self._follow_bundle)

    async def run(self) -> None:
        """Run until cancelled. Call it once."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._namespaces.run())
            tasks.create_task(self._bundles.run())
            await self._namespaces.wait_for_sync()
            await self._bundles.wait_for_sync()
            tasks.create_task(self._queue.run(self._reconcile))

    def _follow_namespace(self, key: Key, old: PartialObjectMetadata | None, new: PartialObjectMetadata | None) -> None:
        if old is None and new is not None:
            self._queue.add(key.name)

    def _follow_bundle(self, key: Key, _old: _Bundle | None, new: _Bundle | None) -> None:
        if new is None or new.data != {FILE: self._authority}:
            self._queue.add(key.namespace)

    async def _reconcile(self, name: str) -> None:
        namespace = self._namespaces.objects.get(Key("", name))
        if namespace is None or namespace.metadata.is_being_deleted:
            return
        key, data = Key(name, NAME), {FILE: self._authority}
        found = self._bundles.objects.get(key)
        if found is None:
            metadata = {"name": NAME, "namespace": name, "annotations": {"kubernetes.io/description": _WORDS}}
            bundle = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
            with suppress(AlreadyExists, NotFound):
                await self._cluster.create(CONFIG_MAPS, bundle)
        elif found.data != data:
            others = dict.fromkeys(found.data.keys() - data.keys())
            with suppress(NotFound):
                await self._cluster.patch(CONFIG_MAPS, key, {"data": {**others, **data}})
