"""Updates objects: PUT and PATCH of an object, its status or its scale."""

from __future__ import annotations

from typing import Any

from tarragon.kube.codec import decode, encode
from tarragon.localcluster.api import errors
from tarragon.localcluster.api.requests import Json, Patch, PatchType, Target, WriteOptions, Written
from tarragon.localcluster.apply.patch import patched, touched
from tarragon.localcluster.kinds.resource import Served
from tarragon.localcluster.registry.apply import applied, as_parent
from tarragon.localcluster.registry.create import Creates, may_be_made_by_update
from tarragon.localcluster.registry.custom_kinds import DEFINITIONS, CustomKinds
from tarragon.localcluster.registry.delete import Deletes
from tarragon.localcluster.registry.scale import rescaled, scale_of, scale_patched
from tarragon.localcluster.registry.service_addresses import Addresses
from tarragon.localcluster.registry.strategy import Author, decoded, prepare_update
from tarragon.localcluster.registry.writes import Decision, Writes, opened, warnings_for
from tarragon.localcluster.schema.unenforced import warnings_of
from tarragon.localcluster.storage.history import Change, Stored
from tarragon.localcluster.storage.objects import has_kept_its_shape, in_version, is_same, version_of
from tarragon.localcluster.validation.deleting import is_gone
from tarragon.localcluster.validation.kinds import rules_of


class Changes:
    """Handles updates and patches, and the delete that follows when one removes the last finalizer."""

    def __init__(self, writes: Writes, creates: Creates, deletes: Deletes, custom_kinds: CustomKinds) -> None:
        self._writes = writes
        self._creates = creates
        self._deletes = deletes
        self._custom_kinds = custom_kinds
        self._addresses = Addresses(writes.store)

    async def update(self, target: Target, body: Json, options: WriteOptions) -> Written:
        def decide() -> Decision[Written]:
            served = target.served
            wanted, unknown = decoded(served, body)
            _refuse_other_name(target, wanted)
            if not target.subresource and may_be_made_by_update(served) and self._is_missing(target):
                wanted["metadata"].pop("resourceVersion", None)
                return self._creates.decided(target, wanted, options)
            stored = self._writes.latest(served, (target.namespace, target.name))
            _refuse_vague_update(served, wanted, stored)
            return self._decided(target, wanted, stored, options, warnings_for(served, unknown, options))

        return await self._writes.run(decide, options)

    async def patch(self, target: Target, patch: Patch, options: WriteOptions) -> Written:
        def decide() -> Decision[Written]:
            served = target.served
            if patch.type is PatchType.APPLY:
                return self._applied(target, patch.body, options)
            stored = self._writes.latest(served, (target.namespace, target.name))
            old = opened(stored, served)
            if _may_share(target, patch):
                body = patched(served, old, patch)
                if isinstance(body.get("metadata"), dict):
                    body["metadata"] = {**body["metadata"]}
            else:
                body, old = patched(served, old, patch), opened(stored, served)
            wanted, unknown = decoded(served, body, touched(patch))
            _refuse_other_name(target, wanted)
            return self._decided(target, wanted, stored, options, warnings_for(served, unknown, options), old=old)

        return await self._writes.run(decide, options)

    async def rescale(self, target: Target, wanted: Json | Patch, options: WriteOptions) -> Written:
        """PUT or PATCH of the subresource `scale`."""
        served = target.served

        def decide() -> Decision[Written]:
            stored = self._writes.latest(served, (target.namespace, target.name))
            thing = opened(stored, served)
            if isinstance(wanted, Patch) and wanted.type is PatchType.APPLY:
                return self._applied(target, as_parent(served, wanted.body), options)
            scale = scale_patched(served, thing, wanted) if isinstance(wanted, Patch) else wanted
            changed, _ = decoded(served, rescaled(served, thing, scale))
            return self._decided(target, changed, stored, options, ())

        written = await self._writes.run(decide, options)
        return Written(encode(scale_of(served, decode(written.object, dict))))

    def _applied(self, target: Target, body: Json, options: WriteOptions) -> Decision[Written]:
        """Decide an apply, which creates a missing object."""
        served, key = target.served, (target.namespace, target.name)
        author = self._writes.author(options, target.subresource).applying()
        if not target.subresource and self._is_missing(target):
            merged = applied(target, None, body, author, force=options.force)
            _refuse_nameless(target, merged)
            _refuse_other_name(target, merged)
            return self._creates.decided(target, merged, options, author)
        stored = self._writes.latest(served, key)
        merged = applied(target, opened(stored, served), body, author, force=options.force)
        wanted, unknown = decoded(served, merged)
        _refuse_other_name(target, wanted)
        return self._decided(target, wanted, stored, options, warnings_for(served, unknown, options), author)

    def _decided(  # noqa: PLR0913, PLR0917 - `author` of an apply, `old` if the caller has decoded it
        self,
        target: Target,
        wanted: Json,
        stored: Stored,
        options: WriteOptions,
        warnings: tuple[str, ...],
        author: Author | None = None,
        old: Json | None = None,
    ) -> Decision[Written]:
        """Decide whether a decoded object may replace the stored one, whose content is `old`."""
        served = target.served
        _refuse_other_version(served, wanted, stored)
        old = old if old is not None else opened(stored, served)
        author = author or self._writes.author(options, target.subresource)
        if not target.subresource:
            self._addresses.settle(served, wanted, old)
        result = prepare_update(served, wanted, old, author)
        if served.full_name == DEFINITIONS and not target.subresource:
            self._custom_kinds.accept(result)
            warnings += warnings_of(result)
        changes = self._changes(served, result, old, stored, options)
        body = next((one.state.body for one in changes if one.key == stored.key), stored.body)
        return Decision(changes, Written(in_version(body, served), warnings=warnings))

    def _changes(self, served: Served, result: Json, old: Json, stored: Stored, options: WriteOptions) -> list[Change]:
        if is_gone(result):
            return self._deletes.ending(served, result, stored, options)
        if is_same(result, old) and has_kept_its_shape(stored.body, served):
            return []
        return [self._writes.change(served, result, stored, options)]

    def _is_missing(self, target: Target) -> bool:
        return self._writes.store.latest(target.served.shelf, (target.namespace, target.name)) is None


def _may_share(target: Target, patch: Patch) -> bool:
    """Whether the new object may share parts with the old one: no rule changes this kind of update in place."""
    return target.subresource == "status" and patch.type is PatchType.MERGE and not target.served.is_custom


def _refuse_nameless(target: Target, thing: Json) -> None:
    if not thing["metadata"].get("name"):
        words = f"the name of the object ({target.name} based on URL) was undeterminable: name must be provided"
        raise errors.bad_request(words)


def _refuse_other_name(target: Target, thing: Json) -> None:
    metadata: dict[str, Any] = thing["metadata"]
    name, namespace = metadata.get("name", target.name), metadata.get("namespace", target.namespace)
    if name != target.name:
        words = f"the name of the object ({name}) does not match the name on the URL ({target.name})"
        raise errors.bad_request(words)
    if target.served.namespaced and namespace != target.namespace:
        words = f"the namespace of the object ({namespace}) does not match the namespace on the request"
        raise errors.bad_request(f"{words} ({target.namespace})")
    metadata["name"] = name
    if target.served.namespaced:
        metadata["namespace"] = namespace


def _refuse_vague_update(served: Served, wanted: Json, stored: Stored) -> None:
    """A PUT must not name another uid, and some kinds require a resourceVersion."""
    metadata = wanted["metadata"]
    uid = decode(stored.body, dict)["metadata"]["uid"]
    if metadata.get("uid") not in {None, "", uid}:
        words = f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {uid}"
        raise errors.conflict(served, stored.key[1], words)
    if rules_of(served).needs_version and not metadata.get("resourceVersion"):
        raise errors.vague_update(served, stored.key[1])


def _refuse_other_version(served: Served, wanted: Json, stored: Stored) -> None:
    text = wanted["metadata"].get("resourceVersion")
    if not text:
        return
    version = version_of(text)
    if version is None:
        words = f'metadata.resourceVersion: Invalid value: "{text}": strconv.ParseUint: invalid syntax'
        raise errors.bad_request(words)
    if version != stored.revision:
        raise errors.modified(served, stored.key[1])
    wanted["metadata"]["resourceVersion"] = str(stored.revision)
