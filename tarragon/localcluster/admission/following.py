"""Further changes that belong to a write: they are stored with it or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tarragon.kube.codec import decode
from tarragon.localcluster.kinds.resource import Served
from tarragon.localcluster.storage.history import Change, ObjectKey, Stored
from tarragon.localcluster.storage.objects import encoded
from tarragon.localcluster.storage.store import Store

Json = dict[str, Any]


class Follower(Protocol):
    """Keeps one kind's status true, and may refuse a write."""

    def following(self, changes: Sequence[Change]) -> Sequence[Change]:
        """What must be stored besides. Raises an ApiError for what may not be."""
        ...


def with_status(store: Store, served: Served, stored: Stored, status: Mapping[str, Any]) -> Change:
    """The object with another status."""
    thing: Json = {**decode(stored.body, dict), "status": status}
    revision = store.next_revision()
    state = store.stored(served.full_name, stored.key, revision, thing, encoded(served, thing, revision))
    return Change(served.full_name, stored.key, stored, state, is_gone=False)


class Known:
    """The names of a kind's objects by namespace, also of those that are queued: it is told of every one made."""

    def __init__(self, store: Store, kind: str) -> None:
        self._store = store
        self._kind = kind
        self._names: dict[str, set[str]] = {}
        for namespace, name in store.shelf(kind).objects:
            self._names.setdefault(namespace, set()).add(name)

    def __bool__(self) -> bool:
        return bool(self._names)

    def see(self, change: Change) -> None:
        """Of a change that may yet come to nothing: a name is only forgotten when its object is seen to be gone."""
        namespace, name = change.key
        if not change.is_gone:
            self._names.setdefault(namespace, set()).add(name)

    def of(self, namespace: str) -> list[Stored]:
        """As they will be."""
        return [stored for name in sorted(self._names.get(namespace, ())) if (stored := self._latest(namespace, name))]

    def _latest(self, namespace: str, name: str) -> Stored | None:
        stored = self._store.latest(self._kind, (namespace, name))
        if stored is None and (namespace, name) not in self._store.shelf(self._kind).objects:
            self._forget(namespace, name)
        return stored

    def _forget(self, namespace: str, name: str) -> None:
        names = self._names[namespace]
        names.discard(name)
        if not names:
            del self._names[namespace]


def newest(store: Store, kind: str, namespace: str, changes: Sequence[Change]) -> dict[ObjectKey, Stored]:
    """All objects of a kind in a namespace once the changes have happened."""
    found = {one.key: one for one in store.latest_of(kind) if one.key[0] == namespace}
    for change in changes:
        if change.kind == kind and change.key[0] == namespace:
            if change.is_gone:
                found.pop(change.key, None)
            else:
                found[change.key] = change.state
    return found
