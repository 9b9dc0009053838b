"""Who owns whom, as the watches tell it: the graph that the garbage collector walks."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass

from tarragon.kube.meta import Key, OwnerReference, Resource, Struct

FOREGROUND = "foregroundDeletion"
"""The finalizer of an object that goes after its dependents."""
ORPHAN = "orphan"
"""The finalizer of an object whose dependents are to stay."""


class OwnedMeta(Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: dt.datetime | None = None
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()


class Owned(Struct, frozen=True):
    """Of an object of any kind, what decides whether it may stay."""

    metadata: OwnedMeta = OwnedMeta()


@dataclass(frozen=True, slots=True)
class Vertex:
    """One object of the graph."""

    resource: Resource[Owned]
    meta: OwnedMeta

    @property
    def key(self) -> Key:
        return Key(self.meta.namespace, self.meta.name)

    @property
    def is_ending(self) -> bool:
        return self.meta.deletion_timestamp is not None

    @property
    def waits_for_dependents(self) -> bool:
        """It is deleted in the foreground: it goes when nothing is left that blocks it."""
        return self.is_ending and FOREGROUND in self.meta.finalizers

    @property
    def sets_dependents_free(self) -> bool:
        """It is deleted, and its dependents are to stay."""
        return self.is_ending and ORPHAN in self.meta.finalizers

    def may_own(self, dependent: Vertex) -> bool:
        """Owners live in the namespace of what they own, or outside of all."""
        return self.meta.namespace in {"", dependent.meta.namespace}

    def blocks(self, owner_uid: str) -> bool:
        """Whether the owner, deleted in the foreground, has to wait for this one."""
        return any(owner.uid == owner_uid and owner.block_owner_deletion for owner in self.meta.owner_references)


class Graph:
    """All objects by uid, and who names whom as its owner."""

    def __init__(self) -> None:
        self._vertices: dict[str, Vertex] = {}
        self._dependents: dict[str, set[str]] = {}

    def get(self, uid: str) -> Vertex | None:
        return self._vertices.get(uid)

    def dependents(self, uid: str) -> list[Vertex]:
        """Those that name this uid as an owner, whether that object is here or not."""
        return [self._vertices[dependent] for dependent in sorted(self._dependents.get(uid, ()))]

    def of_kind(self, resource: Resource[Owned]) -> Iterator[Vertex]:
        return iter([vertex for vertex in self._vertices.values() if vertex.resource == resource])

    def put(self, vertex: Vertex) -> Vertex | None:
        """Answers with what was there before."""
        before = self.remove(vertex.meta.uid)
        self._vertices[vertex.meta.uid] = vertex
        for owner in vertex.meta.owner_references:
            self._dependents.setdefault(owner.uid, set()).add(vertex.meta.uid)
        return before

    def remove(self, uid: str) -> Vertex | None:
        """Its dependents keep naming it."""
        vertex = self._vertices.pop(uid, None)
        for owner in vertex.meta.owner_references if vertex else ():
            if (dependents := self._dependents.get(owner.uid)) is not None:
                dependents.discard(uid)
                if not dependents:
                    del self._dependents[owner.uid]
        return vertex
