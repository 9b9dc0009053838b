"""The graph of owners and dependents that the garbage collector walks."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass

from tarragon.kube.meta import Key, OwnerIdentity, OwnerReference, PartialObject, Resource

FOREGROUND = "foregroundDeletion"
"""The finalizer of an object that is deleted after its dependents."""
ORPHAN = "orphan"
"""The finalizer of an object whose dependents are orphaned."""


class OwnedMeta(PartialObject, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: dt.datetime | None = None
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()


class Owned(PartialObject, frozen=True):
    """The metadata of any object that the garbage collector needs."""

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
        """Whether it is being deleted in the foreground, after the dependents that block it."""
        return self.is_ending and FOREGROUND in self.meta.finalizers

    @property
    def orphans_dependents(self) -> bool:
        """Whether it is being deleted and orphans its dependents."""
        return self.is_ending and ORPHAN in self.meta.finalizers

    @property
    def identity(self) -> OwnerIdentity:
        meta = self.meta
        return OwnerIdentity(
            namespace=meta.namespace, group=self.resource.group, kind=self.resource.kind, name=meta.name, uid=meta.uid
        )

    def is_named_by(self, reference: OwnerReference, dependent: Vertex) -> bool:
        """Whether the dependent's reference is to this object, which must be cluster-scoped or in its namespace."""
        namespace = self.meta.namespace
        return namespace in {"", dependent.meta.namespace} and reference.identity(namespace) == self.identity

    def is_owned_by(self, owner: Vertex) -> bool:
        return any(owner.is_named_by(reference, self) for reference in self.meta.owner_references)

    def blocks(self, owner: Vertex) -> bool:
        """Whether the owner's deletion in the foreground has to wait for this dependent."""
        references = (each for each in self.meta.owner_references if each.block_owner_deletion)
        return any(owner.is_named_by(reference, self) for reference in references)


class Graph:
    """All objects by uid, with their dependents."""

    def __init__(self) -> None:
        self._vertices: dict[str, Vertex] = {}
        self._dependents: dict[str, set[str]] = {}

    def get(self, uid: str) -> Vertex | None:
        return self._vertices.get(uid)

    def referencing(self, uid: str) -> list[Vertex]:
        """The objects with a reference to this uid, whether or not that object exists and the reference is valid."""
        return [self._vertices[dependent] for dependent in sorted(self._dependents.get(uid, ()))]

    def dependents(self, owner: Vertex) -> list[Vertex]:
        """The objects that `owner` owns."""
        return [dependent for dependent in self.referencing(owner.meta.uid) if dependent.is_owned_by(owner)]

    def of_kind(self, resource: Resource[Owned]) -> Iterator[Vertex]:
        return iter([vertex for vertex in self._vertices.values() if vertex.resource == resource])

    def put(self, vertex: Vertex) -> Vertex | None:
        """Add or replace a vertex. Return the one that was there before."""
        before = self.remove(vertex.meta.uid)
        self._vertices[vertex.meta.uid] = vertex
        for owner in vertex.meta.owner_references:
            self._dependents.setdefault(owner.uid, set()).add(vertex.meta.uid)
        return before

    def remove(self, uid: str) -> Vertex | None:
        """Remove and return a vertex. References of its dependents stay."""
        vertex = self._vertices.pop(uid, None)
        for owner in vertex.meta.owner_references if vertex else ():
            if (dependents := self._dependents.get(owner.uid)) is not None:
                dependents.discard(uid)
                if not dependents:
                    del self._dependents[owner.uid]
        return vertex
