"""Caches of the objects of jobs that are kept current: host files and roles, of all kinds of jobs that have any."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from tarragon.client.informer.cache_reader import CacheReader, KeyIndex
from tarragon.frameworks.owned_objects import OWNED_OBJECT_LABEL, OwnedContent
from tarragon.frameworks.plugin import Framework
from tarragon.kube.meta import OwnerIdentity, Resource
from tarragon.operator.informers.controller_owner import controller_owner

CacheFactory = Callable[[Resource[OwnedContent], str], CacheReader[OwnedContent]]
"""Makes the cache of a kind for a label selector."""


class OwnedObjectCaches:
    """One cache for each kind of object that some framework keeps current. Other objects are not in it."""

    def __init__(self, frameworks: Iterable[Framework], cache_of: CacheFactory) -> None:
        kinds = {resource.full_name: resource for framework in frameworks for resource in framework.kept_current}
        self._caches = {name: cache_of(resource, OWNED_OBJECT_LABEL) for name, resource in kinds.items()}
        self._by_owner = {name: KeyIndex(cache, controller_owner) for name, cache in self._caches.items()}

    @property
    def all(self) -> Sequence[CacheReader[OwnedContent]]:
        return list(self._caches.values())

    def unreadable_kinds(self, namespace: str) -> frozenset[str]:
        """The full names of the kinds that the server refuses to list, perhaps because a role has no such rule.

        Decisions are made only after the first list of every kind, or its refusal.
        """
        return frozenset(name for name, cache in self._caches.items() if not cache.has_synced_in(namespace))

    def of_job(self, owner: OwnerIdentity) -> Mapping[tuple[str, str], OwnedContent]:
        """The job's objects by the full name of their kind and their name."""
        return {
            (kind, key.name): cache.objects[key]
            for kind, cache in self._caches.items()
            for key in self._by_owner[kind].keys(owner)
        }
