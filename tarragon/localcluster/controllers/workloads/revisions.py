"""Controller revisions: the templates that stateful sets and daemon sets have had, so that they can go back to one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Generic, TypeVar

from msgspec import to_builtins

from tarragon.client.errors import Conflict, NotFound
from tarragon.client.informer.cache_reader import Index
from tarragon.client.informer.reflector import Cache
from tarragon.client.port import DeleteOptions
from tarragon.localcluster.controllers.workloads.context import Ground, Unseen, owners
from tarragon.localcluster.controllers.workloads.model import CONTROLLER_REVISIONS, ControllerRevision, Json, Owner
from tarragon.localcluster.controllers.workloads.pod_control import Hands
from tarragon.localcluster.controllers.workloads.templates import is_same_template, template_hash

T = TypeVar("T", bound=Owner)

HASH_LABEL = "controller-revision-hash"
_LABEL = "controller.kubernetes.io/hash"


class Revisions(Generic[T]):
    """Of the objects of one kind."""

    def __init__(self, ground: Ground, cache: Cache[ControllerRevision], hands: Hands[T]) -> None:
        self._cluster = ground.cluster
        self._cache = cache
        self._hands = hands
        self._owned = Index(cache, owners)
        self._unseen = Unseen(cache)

    def of(self, owner: T) -> list[ControllerRevision]:
        """The oldest first."""
        found = (self._cache.objects[key] for key in self._owned.keys(self._hands.identity(owner)))
        return sorted(found, key=lambda each: (each.revision, each.metadata.name))

    async def current(self, owner: T, template: Json) -> ControllerRevision | None:
        """The one of this template, made or brought to the front if need be; None while that has not been seen."""
        if not self._unseen.is_settled(owner.metadata.uid):
            return None
        known = self.of(owner)
        same = next((each for each in reversed(known) if is_same_template(template_of(each), template)), None)
        newest = known[-1].revision if known else 0
        if same is None:
            await self._make(owner, template, newest + 1, {each.metadata.name for each in known})
            return None
        if same.revision < newest:
            change = {"metadata": {"uid": same.metadata.uid}, "revision": newest + 1}
            changed = await self._cluster.patch(CONTROLLER_REVISIONS, same.metadata.key, change)
            self._unseen.wrote(owner.metadata.uid, changed.metadata.resource_version)
            return None
        return same

    async def _make(self, owner: T, template: Json, revision: int, taken: set[str]) -> None:
        collisions = 0
        while (name := f"{owner.metadata.name}-{template_hash(template, collisions)}") in taken:
            collisions += 1
        labels = owner.selector.get("matchLabels") or {}
        body = {
            "metadata": {
                "name": name,
                "namespace": owner.metadata.namespace,
                "labels": {**labels, _LABEL: name.removeprefix(f"{owner.metadata.name}-")},
                "ownerReferences": [to_builtins(self._hands.reference(owner))],
            },
            "data": {"spec": {"template": {**template, "$patch": "replace"}}},
            "revision": revision,
        }
        made = await self._cluster.create(CONTROLLER_REVISIONS, body)
        self._unseen.wrote(owner.metadata.uid, made.metadata.resource_version)

    async def forget(self, owner: T, in_use: Sequence[str], limit: int) -> None:
        """Those beyond the history that is wanted; the newest, and those that pods are of, don't count."""
        spare = [each for each in self.of(owner)[:-1] if each.metadata.name not in in_use]
        for each in spare[: max(0, len(spare) - limit)]:
            with suppress(NotFound, Conflict):
                await self._cluster.delete(
                    CONTROLLER_REVISIONS, each.metadata.key, DeleteOptions(uid=each.metadata.uid)
                )


def template_of(revision: ControllerRevision) -> Json:
    template = (revision.data.get("spec") or {}).get("template") or {}
    return {name: value for name, value in template.items() if name != "$patch"}
