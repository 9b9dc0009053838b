"""Applies changes of a CustomResourceDefinition to the served kinds, to its objects and to other definitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tarragon.kube.codec import decode, format_time
from tarragon.localcluster.api import errors
from tarragon.localcluster.api.requests import Json, WriteOptions
from tarragon.localcluster.crd import definitions
from tarragon.localcluster.kinds.registry import KindRegistry
from tarragon.localcluster.kinds.resource import ServedKind
from tarragon.localcluster.registry.writes import NO_PRECONDITION, WriteTransaction, decode_stored
from tarragon.localcluster.storage.encoding import json_equal
from tarragon.localcluster.storage.watch_cache import Change, StoredObject
from tarragon.localcluster.validation.deletion import can_be_removed, mark_deleted

DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"


class CustomKindController:
    """Keeps the registry in step with the committed definitions."""

    def __init__(self, writes: WriteTransaction, registry: KindRegistry) -> None:
        self._writes = writes
        self._store = writes.store
        self._registry = registry
        self._terminating: dict[str, tuple[int, bool]] = {}
        self._store.on_commit = self._applied
        for stored in self._store.watch_cache(DEFINITIONS).objects.values():
            self._serve(_decoded(stored))

    def check_creation(self, served: ServedKind) -> None:
        """Raise 405 while the kind's definition is being deleted."""
        if self._is_terminating(served):
            message = "create not allowed while custom resource definition is terminating"
            details = {"group": served.group, "kind": served.plural}
            raise errors.failure(405, "MethodNotAllowed", message, details)

    def accept_names(self, definition: Json) -> None:
        """Set, in place, the conditions of a new or changed definition by whether its names are free."""
        definitions.accept_names(definition, self._all(), format_time(self._writes.now()))

    def definition_deletion(
        self, served: ServedKind, thing: Json, before: StoredObject, options: WriteOptions
    ) -> list[Change]:
        """The changes for a terminating definition: delete its objects, and itself once nothing keeps it."""
        changes, remaining = self._object_deletions(thing, options)
        metadata: Json = {**thing["metadata"]}
        others = [one for one in metadata.get("finalizers") or () if one != definitions.CLEANUP_FINALIZER]
        if remaining or others:
            metadata["finalizers"] = [*others, definitions.CLEANUP_FINALIZER] if remaining else others
            kept = {**thing, "metadata": metadata, "status": {**thing["status"]}}
            definitions.mark_terminating(kept, format_time(self._writes.now()))
            if not json_equal(kept, decode_stored(before, served)):
                changes.append(self._writes.change(served, kept, before, options))
            return changes
        metadata.pop("finalizers", None)
        gone = {**thing, "metadata": metadata}
        return [*changes, self._writes.removal(served, gone, before, options), *self._successors(served, gone, options)]

    def after_removal(self, served: ServedKind, removed: Iterable[Change], options: WriteOptions) -> list[Change]:
        """The changes to a terminating definition if these removals include its last object."""
        stored = self._definition_of(served)
        if stored is None or not self._is_terminating(served):
            return []
        definition = _decoded(stored)
        removed_keys = {change.key for change in removed}
        if any(one.key not in removed_keys for one in self._store.pending_states(served.full_name)):
            return []
        metadata = definition["metadata"]
        metadata["finalizers"] = [
            one for one in metadata.get("finalizers") or () if one != definitions.CLEANUP_FINALIZER
        ]
        kind = self._definition_kind()
        if not can_be_removed(definition):
            return [self._writes.change(kind, definition, stored, options)]
        removal = self._writes.removal(kind, definition, stored, options)
        return [removal, *self._successors(kind, definition, options)]

    def _object_deletions(self, definition: Json, options: WriteOptions) -> tuple[list[Change], int]:
        """The changes that delete all objects of a definition's kind, and the number that finalizers keep."""
        kinds = definitions.served_kinds(definition)
        if not kinds:
            return [], 0
        served, changes, remaining = kinds[0], [], 0
        for stored in self._store.pending_states(served.full_name):
            thing = decode_stored(stored, served)
            ended = mark_deleted(served, thing, NO_PRECONDITION, self._writes.now())
            if can_be_removed(ended):
                changes.append(self._writes.removal(served, ended, stored, options))
            else:
                remaining += 1
                if ended != thing:
                    changes.append(self._writes.change(served, ended, stored, options))
        return changes, remaining

    def _successors(self, served: ServedKind, gone: Json, options: WriteOptions) -> list[Change]:
        """The change that establishes another definition whose names have become free."""
        changes: list[Change] = []
        rest = [one for one in self._all_stored() if one.key[1] != gone["metadata"]["name"]]
        for stored in rest:
            definition = _decoded(stored)
            if definitions.is_established(definition) or definition["spec"]["group"] != gone["spec"]["group"]:
                continue
            others = [_decoded(one) for one in rest]
            definitions.accept_names(definition, others, format_time(self._writes.now()))
            if definitions.is_established(definition):
                changes.append(self._writes.change(served, definition, stored, options))
        return changes[:1]  # the first takes the names, and the others still conflict

    def _applied(self, change: Change) -> None:
        if change.kind != DEFINITIONS:
            return
        definition = _decoded(change.state)
        if change.is_deletion:
            self._registry.set_custom(definitions.full_name(definition), ())
            self._store.watch_cache(definitions.full_name(definition)).end_watches()
        else:
            self._serve(definition)

    def _serve(self, definition: Json) -> None:
        name = definitions.full_name(definition)
        before = {kind.version: kind for kind in self._registry if kind.full_name == name}
        kinds = [_with_schema_revision(kind, before, definition) for kind in definitions.served_kinds(definition)]
        self._registry.set_custom(name, kinds)
        if before.keys() - {kind.version for kind in kinds}:
            self._store.watch_cache(name).end_watches()

    def _definition_of(self, served: ServedKind) -> StoredObject | None:
        return self._store.pending_state(DEFINITIONS, ("", served.full_name)) if served.is_custom else None

    def _is_terminating(self, served: ServedKind) -> bool:
        """Cached by revision, because every create and delete of a custom object asks."""
        stored = self._definition_of(served)
        if stored is None:
            return False
        revision, is_terminating = self._terminating.get(served.full_name, (0, False))
        if revision != stored.revision:
            is_terminating = bool(_decoded(stored)["metadata"].get("deletionTimestamp"))
            self._terminating[served.full_name] = (stored.revision, is_terminating)
        return is_terminating

    def _definition_kind(self) -> ServedKind:
        kind = self._registry.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        assert kind is not None  # noqa: S101 - it is built in
        return kind

    def _all_stored(self) -> list[StoredObject]:
        return self._store.pending_states(DEFINITIONS)

    def _all(self) -> list[Json]:
        return [_decoded(stored) for stored in self._all_stored()]


def _decoded(stored: StoredObject) -> Any:
    return decode(stored.body, dict)


def _with_schema_revision(kind: ServedKind, before: Mapping[str, ServedKind], definition: Json) -> ServedKind:
    """The kind with `schema_changed_at`: the revision that last changed its schema, after a restart the present one."""
    old = before.get(kind.version)
    if old is not None and old.openapi == kind.openapi:
        return replace(kind, schema_changed_at=old.schema_changed_at)
    is_first = definition["metadata"].get("generation") == 1
    return kind if is_first else replace(kind, schema_changed_at=int(definition["metadata"]["resourceVersion"]))
