"""Creates the service account `default`, which pods use unless they name another, in every namespace."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

from tarragon.base.clock import Clock
from tarragon.client.errors import AlreadyExists, NotFound
from tarragon.client.port import Client, Selector
from tarragon.kube.core import NAMESPACES, SERVICE_ACCOUNTS
from tarragon.kube.meta import Key, PartialObjectMetadata
from tarragon.localcluster.controllers.caches import logged_cache
from tarragon.localcluster.controllers.reconcile_queue import ReconcileQueue

NAME = "default"


class ServiceAccountController:
    """Creates the account, and creates it again after a deletion."""

    def __init__(self, cluster: Client, clock: Clock, jitter: random.Random) -> None:
        self._cluster = cluster
        self._namespaces = logged_cache(cluster, NAMESPACES, clock, jitter)
        ours = Selector(field_selector=f"metadata.name={NAME}")
        self._accounts = logged_cache(cluster, SERVICE_ACCOUNTS, clock, jitter, ours)
        self._queue: ReconcileQueue[str] = ReconcileQueue(clock)
        self._namespaces.add_event_handler(self._follow_namespace)
        self._accounts.add_event_handler(self._follow_account)

    async def run(self) -> None:
        """Run until cancelled. Call it once."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._namespaces.run())
            tasks.create_task(self._accounts.run())
            await self._namespaces.wait_for_sync()
            await self._accounts.wait_for_sync()
            tasks.create_task(self._queue.run(self._reconcile))

    def _follow_namespace(self, key: Key, old: PartialObjectMetadata | None, new: PartialObjectMetadata | None) -> None:
        if old is None and new is not None:
            self._queue.add(key.name)

    def _follow_account(self, key: Key, _old: PartialObjectMetadata | None, new: PartialObjectMetadata | None) -> None:
        if new is None:
            self._queue.add(key.namespace)

    async def _reconcile(self, name: str) -> None:
        namespace = self._namespaces.objects.get(Key("", name))
        if namespace is None or namespace.metadata.is_being_deleted or Key(name, NAME) in self._accounts.objects:
            return
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME, "namespace": name}}
        with suppress(AlreadyExists, NotFound):
            await self._cluster.create(SERVICE_ACCOUNTS, account)
