"""Updates objects: PUT and PATCH of an object, its status or its scale."""

from __future__ import annotations

from typing import Any

from tarragon.kube.codec import decode, encode
from tarragon.localcluster.api import errors
from tarragon.localcluster.api.requests import Json, PatchBody, PatchType, RequestTarget, WriteOptions, WriteResult
from tarragon.localcluster.apply.patch import apply_patch, changed_parts
from tarragon.localcluster.kinds.resource import ServedKind
from tarragon.localcluster.registry.apply import scale_as_parent, server_side_applied
from tarragon.localcluster.registry.create import Creator, creates_on_update
from tarragon.localcluster.registry.custom_kinds import DEFINITIONS, CustomKindController
from tarragon.localcluster.registry.delete import Deleter
from tarragon.localcluster.registry.scale import apply_scale, patched_scale, scale_of
from tarragon.localcluster.registry.service_allocator import ServiceAllocator
from tarragon.localcluster.registry.strategy import FieldManager, decode_object, prepare_update
from tarragon.localcluster.registry.writes import WriteDecision, WriteTransaction, decode_stored, field_warnings
from tarragon.localcluster.schema.unenforced import unenforced_warnings
from tarragon.localcluster.storage.encoding import (
    encode_in_version,
    has_current_shape,
    json_equal,
    parse_resource_version,
)
from tarragon.localcluster.storage.watch_cache import Change, StoredObject
from tarragon.localcluster.validation.deletion import can_be_removed
from tarragon.localcluster.validation.kind_rules import rules_of


class Updater:
    """Handles updates and patches, and the delete that follows when one removes the last finalizer."""

    def __init__(
        self, writes: WriteTransaction, creates: Creator, deletes: Deleter, custom_kinds: CustomKindController
    ) -> None:
        self._writes = writes
        self._creates = creates
        self._deletes = deletes
        self._custom_kinds = custom_kinds
        self._addresses = ServiceAllocator(writes.store)

    async def update(self, target: RequestTarget, body: Json, options: WriteOptions) -> WriteResult:
        def decide() -> WriteDecision[WriteResult]:
            served = target.served
            wanted, unknown = decode_object(served, body)
            _refuse_other_name(target, wanted)
            if not target.subresource and creates_on_update(served) and self._is_missing(target):
                wanted["metadata"].pop("resourceVersion", None)
                return self._creates.decide(target, wanted, options)
            stored = self._writes.latest(served, (target.namespace, target.name))
            _refuse_vague_update(served, wanted, stored)
            return self._decided(target, wanted, stored, options, field_warnings(served, unknown, options))

        return await self._writes.run(decide, options)

    async def patch(self, target: RequestTarget, patch: PatchBody, options: WriteOptions) -> WriteResult:
        def decide() -> WriteDecision[WriteResult]:
            served = target.served
            if patch.type is PatchType.APPLY:
                return self._applied(target, patch.body, options)
            stored = self._writes.latest(served, (target.namespace, target.name))
            old = decode_stored(stored, served)
            if _may_share(target, patch):
                body = apply_patch(served, old, patch)
                if isinstance(body.get("metadata"), dict):
                    body["metadata"] = {**body["metadata"]}
            else:
                body, old = apply_patch(served, old, patch), decode_stored(stored, served)
            wanted, unknown = decode_object(served, body, changed_parts(patch))
            _refuse_other_name(target, wanted)
            return self._decided(target, wanted, stored, options, field_warnings(served, unknown, options), old=old)

        return await self._writes.run(decide, options)

    async def rescale(self, target: RequestTarget, wanted: Json | PatchBody, options: WriteOptions) -> WriteResult:
        """PUT or PATCH of the subresource `scale`."""
        served = target.served

        def decide() -> WriteDecision[WriteResult]:
            stored = self._writes.latest(served, (target.namespace, target.name))
            thing = decode_stored(stored, served)
            if isinstance(wanted, PatchBody) and wanted.type is PatchType.APPLY:
                return self._applied(target, scale_as_parent(served, wanted.body), options)
            scale = patched_scale(served, thing, wanted) if isinstance(wanted, PatchBody) else wanted
            changed, _ = decode_object(served, apply_scale(served, thing, scale))
            return self._decided(target, changed, stored, options, ())

        written = await self._writes.run(decide, options)
        return WriteResult(encode(scale_of(served, decode(written.object, dict))))

    def _applied(self, target: RequestTarget, body: Json, options: WriteOptions) -> WriteDecision[WriteResult]:
        """Decide an apply, which creates a missing object."""
        served, key = target.served, (target.namespace, target.name)
        author = self._writes.field_manager(options, target.subresource).as_apply()
        if not target.subresource and self._is_missing(target):
            merged = server_side_applied(target, None, body, author, force=options.force)
            _refuse_nameless(target, merged)
            _refuse_other_name(target, merged)
            return self._creates.decide(target, merged, options, author)
        stored = self._writes.latest(served, key)
        merged = server_side_applied(target, decode_stored(stored, served), body, author, force=options.force)
        wanted, unknown = decode_object(served, merged)
        _refuse_other_name(target, wanted)
        return self._decided(target, wanted, stored, options, field_warnings(served, unknown, options), author)

    def _decided(  # noqa: PLR0913, PLR0917 - `author` of an apply, `old` if the caller has decoded it
        self,
        target: RequestTarget,
        wanted: Json,
        stored: StoredObject,
        options: WriteOptions,
        warnings: tuple[str, ...],
        author: FieldManager | None = None,
        old: Json | None = None,
    ) -> WriteDecision[WriteResult]:
        """Decide whether a decoded object may replace the stored one, whose content is `old`."""
        served = target.served
        _refuse_other_version(served, wanted, stored)
        old = old if old is not None else decode_stored(stored, served)
        author = author or self._writes.field_manager(options, target.subresource)
        if not target.subresource:
            self._addresses.allocate(served, wanted, old)
        result = prepare_update(served, wanted, old, author)
        if served.full_name == DEFINITIONS and not target.subresource:
            self._custom_kinds.accept_names(result)
            warnings += unenforced_warnings(result)
        changes = self._changes(served, result, old, stored, options)
        body = next((one.state.body for one in changes if one.key == stored.key), stored.body)
        return WriteDecision(changes, WriteResult(encode_in_version(body, served), warnings=warnings))

    def _changes(
        self, served: ServedKind, result: Json, old: Json, stored: StoredObject, options: WriteOptions
    ) -> list[Change]:
        if can_be_removed(result):
            return self._deletes.finalize_or_store(served, result, stored, options)
        if json_equal(result, old) and has_current_shape(stored.body, served):
            return []
        return [self._writes.change(served, result, stored, options)]

    def _is_missing(self, target: RequestTarget) -> bool:
        return self._writes.store.pending_state(target.served.storage_name, (target.namespace, target.name)) is None


def _may_share(target: RequestTarget, patch: PatchBody) -> bool:
    """Whether the new object may share parts with the old one: no rule changes this kind of update in place."""
    return target.subresource == "status" and patch.type is PatchType.MERGE and not target.served.is_custom


def _refuse_nameless(target: RequestTarget, thing: Json) -> None:
    if not thing["metadata"].get("name"):
        words = f"the name of the object ({target.name} based on URL) was undeterminable: name must be provided"
        raise errors.bad_request(words)


def _refuse_other_name(target: RequestTarget, thing: Json) -> None:
    metadata: dict[str, Any] = thing["metadata"]
    name, namespace = metadata.get("name", target.name), metadata.get("namespace", target.namespace)
    if name != target.name:
        words = f"the name of the object ({name}) does not match the name on the URL ({target.name})"
        raise errors.bad_request(words)
    if target.served.namespaced and namespace != target.namespace:
        raise errors.other_namespace()
    metadata["name"] = name
    if target.served.namespaced:
        metadata["namespace"] = namespace


def _refuse_vague_update(served: ServedKind, wanted: Json, stored: StoredObject) -> None:
    """A PUT must not name another uid, and some kinds require a resourceVersion."""
    metadata = wanted["metadata"]
    uid = decode(stored.body, dict)["metadata"]["uid"]
    if metadata.get("uid") not in {None, "", uid}:
        words = f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {uid}"
        raise errors.conflict(served, stored.key[1], words)
    if rules_of(served).requires_resource_version and not metadata.get("resourceVersion"):
        raise errors.missing_resource_version(served, stored.key[1])


def _refuse_other_version(served: ServedKind, wanted: Json, stored: StoredObject) -> None:
    text = wanted["metadata"].get("resourceVersion")
    if not text:
        return
    version = parse_resource_version(text)
    if version is None:
        words = f'metadata.resourceVersion: Invalid value: "{text}": strconv.ParseUint: invalid syntax'
        raise errors.bad_request(words)
    if version != stored.revision:
        raise errors.modified(served, stored.key[1])
    wanted["metadata"]["resourceVersion"] = str(stored.revision)
