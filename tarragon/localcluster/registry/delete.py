"""Deletes objects: one, all that are selected, or an evicted pod."""

from __future__ import annotations

from collections.abc import Sequence

from tarragon.client.port import DeleteOptions
from tarragon.kube.codec import encode
from tarragon.localcluster.api import errors
from tarragon.localcluster.api.requests import Deleted, Json, Target, WriteOptions
from tarragon.localcluster.kinds.resource import Served
from tarragon.localcluster.registry.custom_kinds import DEFINITIONS, CustomKinds
from tarragon.localcluster.registry.writes import Decision, Writes, opened
from tarragon.localcluster.storage.history import Change, ObjectKey, Stored
from tarragon.localcluster.storage.objects import in_version
from tarragon.localcluster.validation.deleting import is_gone, marked, refuse_precondition
from tarragon.localcluster.validation.kinds import rules_of

_MARKED_KINDS = frozenset({"pods", "namespaces", DEFINITIONS})
"""Kinds whose last state has a deletionTimestamp. Other objects are removed unmarked if nothing keeps them."""


class Deletes:
    """Deletes objects, and terminating definitions with their last object."""

    def __init__(self, writes: Writes, custom_kinds: CustomKinds) -> None:
        self._writes = writes
        self._custom_kinds = custom_kinds

    async def delete(self, target: Target, options: DeleteOptions, writing: WriteOptions) -> Deleted:
        def decide() -> Decision[Deleted]:
            stored = self._writes.latest(target.served, (target.namespace, target.name))
            return self.decided(target.served, stored, options, writing)

        return await self._writes.run(decide, writing)

    async def delete_many(
        self, served: Served, keys: Sequence[ObjectKey], options: DeleteOptions, writing: WriteOptions
    ) -> None:
        """Delete the objects that still exist, in one commit."""

        def decide() -> Decision[None]:
            found = (self._writes.store.latest(served.shelf, key) for key in keys)
            decisions = [self.decided(served, stored, options, writing) for stored in found if stored is not None]
            return Decision([change for decision in decisions for change in decision.changes], None)

        await self._writes.run(decide, writing)

    def decided(
        self, served: Served, stored: Stored, options: DeleteOptions, writing: WriteOptions
    ) -> Decision[Deleted]:
        """Decide a delete. Raises Conflict and Forbidden."""
        thing = opened(stored, served)
        refuse_precondition(served, thing, options)
        ended = marked(served, thing, options, self._writes.now())
        if is_gone(ended) and not thing["metadata"].get("deletionTimestamp") and served.full_name not in _MARKED_KINDS:
            changes = self._removal(served, thing, stored, writing)
        else:
            changes = self.ending(served, ended, stored, writing)
        own = next((change for change in changes if (change.kind, change.key) == (served.shelf, stored.key)), None)
        if own is not None and own.is_gone and not rules_of(served).tells_deleted:
            status = errors.success(served, stored.key[1], str(thing["metadata"]["uid"]))
            return Decision(changes, Deleted(encode(status), is_gone=True))
        body = in_version(own.state.body if own is not None else stored.body, served)
        return Decision(changes, Deleted(body, is_gone=own is not None and own.is_gone))

    def ending(self, served: Served, thing: Json, before: Stored, writing: WriteOptions) -> list[Change]:
        """The changes for an object that is marked as deleted: remove it, or store its marks if something keeps it."""
        if served.full_name == DEFINITIONS:
            return self._custom_kinds.definition_end(served, thing, before, writing)
        if is_gone(thing):
            return self._removal(served, thing, before, writing)
        if thing == opened(before, served):
            return []
        return [self._writes.change(served, thing, before, writing)]

    def _removal(self, served: Served, last: Json, before: Stored, writing: WriteOptions) -> list[Change]:
        """Remove the object, and a terminating definition with its last object."""
        removal = self._writes.removal(served, last, before, writing)
        return [removal, *self._custom_kinds.after_removal(served, [removal], writing)]
