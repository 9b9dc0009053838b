"""Deletes objects: one, all that are selected, or an evicted pod."""

from __future__ import annotations

from collections.abc import Sequence

from tarragon.client.port import DeleteOptions
from tarragon.kube.codec import encode
from tarragon.localcluster.api import errors
from tarragon.localcluster.api.requests import DeleteResult, Json, RequestTarget, WriteOptions
from tarragon.localcluster.kinds.resource import ServedKind
from tarragon.localcluster.registry.custom_kinds import DEFINITIONS, CustomKindController
from tarragon.localcluster.registry.writes import WriteDecision, WriteTransaction, decode_stored
from tarragon.localcluster.storage.encoding import encode_in_version
from tarragon.localcluster.storage.watch_cache import Change, ObjectKey, StoredObject
from tarragon.localcluster.validation.deletion import can_be_removed, check_preconditions, mark_deleted
from tarragon.localcluster.validation.kind_rules import rules_of

_MARKED_KINDS = frozenset({"pods", "namespaces", DEFINITIONS})
"""Kinds whose last state has a deletionTimestamp. Other objects are removed unmarked if nothing keeps them."""


class Deleter:
    """Deletes objects, and terminating definitions with their last object."""

    def __init__(self, writes: WriteTransaction, custom_kinds: CustomKindController) -> None:
        self._writes = writes
        self._custom_kinds = custom_kinds

    async def delete(self, target: RequestTarget, options: DeleteOptions, writing: WriteOptions) -> DeleteResult:
        def decide() -> WriteDecision[DeleteResult]:
            stored = self._writes.latest(target.served, (target.namespace, target.name))
            return self.decide(target.served, stored, options, writing)

        return await self._writes.run(decide, writing)

    async def delete_many(
        self, served: ServedKind, keys: Sequence[ObjectKey], options: DeleteOptions, writing: WriteOptions
    ) -> None:
        """Delete the objects that still exist, in one commit."""

        def decide() -> WriteDecision[None]:
            found = (self._writes.store.pending_state(served.storage_name, key) for key in keys)
            decisions = [self.decide(served, stored, options, writing) for stored in found if stored is not None]
            return WriteDecision([change for decision in decisions for change in decision.changes], None)

        await self._writes.run(decide, writing)

    def decide(
        self, served: ServedKind, stored: StoredObject, options: DeleteOptions, writing: WriteOptions
    ) -> WriteDecision[DeleteResult]:
        """Decide a delete. Raises Conflict and Forbidden."""
        thing = decode_stored(stored, served)
        check_preconditions(served, thing, options)
        ended = mark_deleted(served, thing, options, self._writes.now())
        if (
            can_be_removed(ended)
            and not thing["metadata"].get("deletionTimestamp")
            and served.full_name not in _MARKED_KINDS
        ):
            changes = self._removal(served, thing, stored, writing)
        else:
            changes = self.finalize_or_store(served, ended, stored, writing)
        own = next(
            (change for change in changes if (change.kind, change.key) == (served.storage_name, stored.key)), None
        )
        if own is not None and own.is_deletion and not rules_of(served).returns_deleted:
            status = errors.success(served, stored.key[1], str(thing["metadata"]["uid"]))
            return WriteDecision(changes, DeleteResult(encode(status), is_gone=True))
        body = encode_in_version(own.state.body if own is not None else stored.body, served)
        return WriteDecision(changes, DeleteResult(body, is_gone=own is not None and own.is_deletion))

    def finalize_or_store(
        self, served: ServedKind, thing: Json, before: StoredObject, writing: WriteOptions
    ) -> list[Change]:
        """The changes for an object that is marked as deleted: remove it, or store its marks if something keeps it."""
        if served.full_name == DEFINITIONS:
            return self._custom_kinds.definition_deletion(served, thing, before, writing)
        if can_be_removed(thing):
            return self._removal(served, thing, before, writing)
        if thing == decode_stored(before, served):
            return []
        return [self._writes.change(served, thing, before, writing)]

    def _removal(self, served: ServedKind, last: Json, before: StoredObject, writing: WriteOptions) -> list[Change]:
        """Remove the object, and a terminating definition with its last object."""
        removal = self._writes.removal(served, last, before, writing)
        return [removal, *self._custom_kinds.after_removal(served, [removal], writing)]
