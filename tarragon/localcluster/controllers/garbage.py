"""The garbage collector, which deletes objects whose owners are gone, by the propagation policy of the deletion."""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum, auto
from typing import Literal

from msgspec import structs, to_builtins

from tarragon.base.clock import Clock
from tarragon.client.errors import NotFound
from tarragon.client.informer.informer import Informer
from tarragon.client.port import Client, DeleteOptions
from tarragon.kube.core import CUSTOM_RESOURCE_DEFINITIONS
from tarragon.kube.meta import (
    CustomObject,
    Key,
    OwnerIdentity,
    OwnerReference,
    PartialObjectMetadata,
    Resource,
    group_of,
)
from tarragon.localcluster.controllers.caches import logged_cache
from tarragon.localcluster.controllers.kinds import kind_of
from tarragon.localcluster.controllers.ownership import FOREGROUND, ORPHAN, Graph, Owned, Vertex
from tarragon.localcluster.controllers.reconcile_queue import ReconcileQueue

Propagation = Literal["Background", "Foreground", "Orphan"]

_REMEMBERED = 10_000
"""How many identities of deleted objects are kept, for dependents whose owner's kind is gone, too."""


class _Owner(Enum):
    SOLID = auto()
    WAITING = auto()
    """Being deleted in the foreground: waits until its dependents are gone."""
    ABSENT = auto()


class GarbageCollector:
    """Deletes an object when all its owners are gone, as kube-controller-manager does.

    An owner has the kind, name and uid of the reference and is cluster-scoped or in the object's namespace; an owner in
    another namespace counts as gone. An owner whose kind is not served counts as present, as its kind may come back.
    """

    def __init__(
        self, cluster: Client, kinds: Sequence[Resource[PartialObjectMetadata]], clock: Clock, jitter: random.Random
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._jitter = jitter
        # Events are many and short-lived, and have no owners.
        self._built_in = [kind.with_model(Owned) for kind in kinds if kind.kind != "Event"]
        self._watches: dict[Resource[Owned], asyncio.Task[None]] = {}
        self._graph = Graph()
        self._gone: OrderedDict[OwnerIdentity, None] = OrderedDict()
        self._queue: ReconcileQueue[str] = ReconcileQueue(clock)

    async def run(self) -> None:
        """Run until cancelled. Call it once: another run needs another collector."""
        definitions = CUSTOM_RESOURCE_DEFINITIONS.with_model(CustomObject)
        crds = logged_cache(self._cluster, definitions, self._clock, self._jitter)
        async with asyncio.TaskGroup() as tasks:
            caches = [self._watch(kind, tasks) for kind in self._built_in]
            crds.add_event_handler(lambda _key, old, new: self._follow_definition(old, new, tasks))
            tasks.create_task(crds.run())
            await crds.wait_for_sync()
            # Nothing is deleted before all built-in kinds have synced. Custom kinds may lag: absence is verified.
            for cache in caches:
                await cache.wait_for_sync()
            tasks.create_task(self._queue.run(self._reconcile))

    def _watch(self, kind: Resource[Owned], tasks: asyncio.TaskGroup) -> Informer[Owned]:
        cache = logged_cache(self._cluster, kind, self._clock, self._jitter)
        cache.add_event_handler(lambda _key, old, new: self._follow(kind, old, new))
        self._watches[kind] = tasks.create_task(cache.run())
        return cache

    def _follow_definition(self, old: CustomObject | None, new: CustomObject | None, tasks: asyncio.TaskGroup) -> None:
        before, after = (kind_of(definition) if definition else None for definition in (old, new))
        if before == after:
            return
        if before is not None:
            kind = before.with_model(Owned)
            self._watches.pop(kind).cancel()
            for vertex in self._graph.of_kind(kind):
                self._remove(vertex.meta.uid)
        if after is not None:
            self._watch(after.with_model(Owned), tasks)

    def _follow(self, kind: Resource[Owned], old: Owned | None, new: Owned | None) -> None:
        if new is None:
            if old is not None:
                self._remove(old.metadata.uid)
            return
        vertex = Vertex(kind, new.metadata)
        before = self._graph.put(vertex)
        self._queue.add(new.metadata.uid)
        if vertex.waits_for_dependents and not (before and before.waits_for_dependents):
            self._add_all(self._graph.referencing(new.metadata.uid))
        self._add_waiting_owners(vertex if before is None else before)

    def _remove(self, uid: str) -> None:
        vertex = self._graph.remove(uid)
        if vertex is not None:
            self._gone[vertex.identity] = None
            if len(self._gone) > _REMEMBERED:
                self._gone.popitem(last=False)
            self._add_waiting_owners(vertex)
        self._add_all(self._graph.referencing(uid))

    def _add_all(self, vertices: Iterable[Vertex]) -> None:
        for vertex in vertices:
            self._queue.add(vertex.meta.uid)

    def _add_waiting_owners(self, vertex: Vertex) -> None:
        for reference in vertex.meta.owner_references:
            owner = self._graph.get(reference.uid)
            if owner is not None and owner.waits_for_dependents:
                self._queue.add(reference.uid)

    async def _reconcile(self, uid: str) -> None:
        vertex = self._graph.get(uid)
        if vertex is None:
            return
        try:
            if vertex.orphans_dependents:
                await self._orphan_dependents(vertex)
            elif vertex.waits_for_dependents:
                await self._finish_foreground_deletion(vertex)
            elif not vertex.is_ending and vertex.meta.owner_references:
                await self._keep_or_delete(vertex)
        except NotFound:
            return  # it is gone, as the watch will show

    async def _orphan_dependents(self, owner: Vertex) -> None:
        for dependent in self._graph.dependents(owner):
            stays = [each for each in dependent.meta.owner_references if not owner.is_named_by(each, dependent)]
            with suppress(NotFound):
                await self._write_owners(dependent, stays)
        await self._drop_finalizer(owner, ORPHAN)

    async def _finish_foreground_deletion(self, owner: Vertex) -> None:
        dependents = self._graph.dependents(owner)
        if any(dependent.blocks(owner) for dependent in dependents):
            self._add_all(dependents)
        else:
            await self._drop_finalizer(owner, FOREGROUND)

    async def _keep_or_delete(self, vertex: Vertex) -> None:
        states = {reference: await self._state(reference, vertex) for reference in vertex.meta.owner_references}
        if _Owner.SOLID in states.values():
            if set(states.values()) != {_Owner.SOLID}:
                await self._write_owners(vertex, [each for each, state in states.items() if state is _Owner.SOLID])
            return
        dependents = self._graph.dependents(vertex)
        if _Owner.WAITING in states.values() and dependents:
            await self._break_circles(vertex, dependents)
            await self._delete(vertex, "Foreground")
        else:
            await self._delete(vertex, _propagation_policy(vertex))

    async def _state(self, reference: OwnerReference, dependent: Vertex) -> _Owner:
        owner = self._graph.get(reference.uid)
        if owner is None or not owner.is_named_by(reference, dependent):
            return await self._state_of_unknown(reference, dependent)
        return _Owner.WAITING if owner.waits_for_dependents else _Owner.SOLID

    async def _state_of_unknown(self, reference: OwnerReference, dependent: Vertex) -> _Owner:
        """Ask the server about an owner that is not in the graph: watches of different kinds are not in step."""
        if not self._gone.keys().isdisjoint(map(reference.identity, {dependent.meta.namespace, ""})):
            return _Owner.ABSENT
        kind = self._kind(reference)
        if kind is None or (kind.namespaced and not dependent.meta.namespace):
            # The reference of a cluster-scoped object does not say in which namespace its owner is.
            return _Owner.SOLID
        namespace = dependent.meta.namespace if kind.namespaced else ""
        try:
            owner = await self._cluster.get(kind, Key(namespace, reference.name))
        except NotFound:
            return _Owner.ABSENT
        return _Owner.SOLID if owner.metadata.uid == reference.uid else _Owner.ABSENT

    def _kind(self, reference: OwnerReference) -> Resource[Owned] | None:
        wanted = group_of(reference.api_version), reference.kind
        return next((kind for kind in self._watches if (kind.group, kind.kind) == wanted), None)

    async def _break_circles(self, vertex: Vertex, dependents: Sequence[Vertex]) -> None:
        """Stop blocking the owners: two objects that block each other would never be deleted."""
        if not any(dependent.waits_for_dependents for dependent in dependents):
            return
        references = [structs.replace(owner, block_owner_deletion=False) for owner in vertex.meta.owner_references]
        await self._write_owners(vertex, references)

    async def _write_owners(self, vertex: Vertex, owners: Sequence[OwnerReference]) -> None:
        await self._patch(vertex, {"ownerReferences": to_builtins(owners) or None})

    async def _drop_finalizer(self, vertex: Vertex, finalizer: str) -> None:
        await self._patch(
            vertex, {"finalizers": [name for name in vertex.meta.finalizers if name != finalizer] or None}
        )

    async def _patch(self, vertex: Vertex, change: Mapping[str, object]) -> None:
        condition = {"uid": vertex.meta.uid, "resourceVersion": vertex.meta.resource_version}
        await self._cluster.patch(vertex.resource, vertex.key, {"metadata": {**condition, **change}})

    async def _delete(self, vertex: Vertex, propagation: Propagation) -> None:
        options = DeleteOptions(
            uid=vertex.meta.uid, resource_version=vertex.meta.resource_version, propagation_policy=propagation
        )
        await self._cluster.delete(vertex.resource, vertex.key, options)


def _propagation_policy(vertex: Vertex) -> Propagation:
    """The propagation policy that the object's finalizers ask for."""
    if ORPHAN in vertex.meta.finalizers:
        return "Orphan"
    return "Foreground" if FOREGROUND in vertex.meta.finalizers else "Background"
