"""The namespace controller, which deletes the contents of terminating namespaces."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from tarragon.base.clock import Clock
from tarragon.client.errors import Conflict, NotFound
from tarragon.client.port import Client, DeleteOptions, Selector
from tarragon.kube.core import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES
from tarragon.kube.meta import CustomObject, Key, PartialObjectMetadata, Resource
from tarragon.localcluster.controllers.caches import logged_cache
from tarragon.localcluster.controllers.kinds import kind_of
from tarragon.localcluster.controllers.reconcile_queue import ReconcileQueue

_LOOK_AGAIN_SECONDS = 0.25
"""Until a terminating namespace is looked at again: pods have a grace period, and objects may have finalizers."""


class NamespaceController:
    """Deletes everything in a terminating namespace, then removes its finalizer."""

    def __init__(
        self, cluster: Client, kinds: Sequence[Resource[PartialObjectMetadata]], clock: Clock, jitter: random.Random
    ) -> None:
        self._cluster = cluster
        self._kinds = [kind for kind in kinds if kind.namespaced]
        self._namespaces = logged_cache(cluster, NAMESPACES.with_model(CustomObject), clock, jitter)
        self._queue: ReconcileQueue[Key] = ReconcileQueue(clock)
        self._namespaces.add_event_handler(self._follow)

    async def run(self) -> None:
        """Run until cancelled. Call it once."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._namespaces.run())
            tasks.create_task(self._queue.run(self._reconcile))

    def _follow(self, key: Key, _old: CustomObject | None, new: CustomObject | None) -> None:
        if new is not None and new.metadata.is_being_deleted:
            self._queue.add(key)

    async def _reconcile(self, key: Key) -> float | None:
        namespace = self._namespaces.objects.get(key)
        if namespace is None or not namespace.metadata.is_being_deleted:
            return None
        if await self._empty(key.name):
            await self._remove_finalizer(namespace)
            return None
        return _LOOK_AGAIN_SECONDS

    async def _empty(self, name: str) -> bool:
        """Delete the contents. Return whether there were none."""
        found = 0
        for kind in await self._all_kinds():
            with suppress(NotFound):  # the CRD of the kind has been deleted meanwhile
                listing = await self._cluster.list(kind, Selector(namespace=name))
                found += len(listing.items)
                for item in listing.items:
                    if not item.metadata.is_being_deleted:
                        await self._delete(kind, item)
        return not found

    async def _delete(self, kind: Resource[PartialObjectMetadata], item: PartialObjectMetadata) -> None:
        with suppress(NotFound, Conflict):
            options = DeleteOptions(uid=item.metadata.uid, propagation_policy="Background")
            await self._cluster.delete(kind, item.metadata.key, options)

    async def _all_kinds(self) -> list[Resource[PartialObjectMetadata]]:
        definitions = await self._cluster.list(CUSTOM_RESOURCE_DEFINITIONS.with_model(CustomObject))
        custom = [kind_of(definition) for definition in definitions.items]
        return [*self._kinds, *(kind for kind in custom if kind is not None and kind.namespaced)]

    async def _remove_finalizer(self, namespace: CustomObject) -> None:
        """Remove the finalizer `kubernetes` from the spec, which only the subresource `finalize` can do."""
        spec: dict[str, Any] = namespace.spec if isinstance(namespace.spec, dict) else {}
        rest = [finalizer for finalizer in spec.get("finalizers") or [] if finalizer != "kubernetes"]
        metadata = {"uid": namespace.metadata.uid, "resourceVersion": namespace.metadata.resource_version}
        change = {"metadata": metadata, "spec": {"finalizers": rest}}
        with suppress(NotFound):
            await self._cluster.patch(NAMESPACES, namespace.metadata.key, change, subresource="finalize")
