"""Validation of metadata, which is the same for every kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tarragon.kube import name_validation
from tarragon.localcluster.schema.field_errors import FieldError, forbidden_value, invalid_value, required

Json = dict[str, Any]

_MAX_ANNOTATION_BYTES = 256 * 1024
_STANDARD_FINALIZERS = frozenset({"orphan", "foregroundDeletion", "kubernetes"})
_IMMUTABLE = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


def metadata_faults(metadata: Mapping[str, Any], name_fault: Callable[[str], str]) -> Iterator[FieldError]:
    """Faults in the metadata of a new or changed object."""
    name = metadata.get("name") or ""
    if not name:
        yield required("metadata.name", "name or generateName is required")
    elif words := name_fault(name):
        yield invalid_value("metadata.name", name, words)
    for key, value in (metadata.get("labels") or {}).items():
        if words := name_validation.qualified(key):
            yield invalid_value("metadata.labels", key, words)
        if words := name_validation.label_value(value):
            yield invalid_value("metadata.labels", value, words)
    yield from _annotation_faults(metadata.get("annotations") or {})
    yield from _owner_faults(metadata.get("ownerReferences") or ())
    for index, finalizer in enumerate(metadata.get("finalizers") or ()):
        if words := name_validation.qualified(finalizer):
            yield invalid_value(f"metadata.finalizers[{index}]", finalizer, words)


def finalizer_faults(metadata: Mapping[str, Any]) -> Iterator[FieldError]:
    """Faults of finalizers in built-in kinds, which are stricter than custom ones."""
    for index, finalizer in enumerate(metadata.get("finalizers") or ()):
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            words = "name is neither a standard finalizer name nor is it fully qualified"
            yield invalid_value(f"metadata.finalizers[{index}]", finalizer, words)


def restore_server_fields(new: Json, old: Mapping[str, Any]) -> None:
    """Restore, in place, the fields in the metadata of an update that only the server sets."""
    if not new.get("uid"):
        new["uid"] = old["uid"]
    for field in ("creationTimestamp", "generation", "generateName", "selfLink"):
        if field in old:
            new[field] = old[field]
        else:
            new.pop(field, None)
    if old.get("deletionTimestamp"):
        new["deletionTimestamp"] = old["deletionTimestamp"]
    if new.get("deletionGracePeriodSeconds") is None and old.get("deletionGracePeriodSeconds") is not None:
        new["deletionGracePeriodSeconds"] = old["deletionGracePeriodSeconds"]


def update_faults(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[FieldError]:
    """Faults of changes to immutable metadata."""
    for field in _IMMUTABLE:
        if new.get(field) != old.get(field):
            yield invalid_value(f"metadata.{field}", new.get(field), "field is immutable")
    if old.get("deletionTimestamp"):
        added = [one for one in new.get("finalizers") or () if one not in (old.get("finalizers") or ())]
        if added:
            listed = ", ".join(f'"{one}"' for one in added)
            yield forbidden_value(
                "metadata.finalizers",
                "no new finalizers can be added if the object is being deleted, "
                f"found new finalizers []string{{{listed}}}",
            )


def _annotation_faults(annotations: Mapping[str, str]) -> Iterator[FieldError]:
    for key in annotations:
        if words := name_validation.qualified(key.lower()):
            yield invalid_value("metadata.annotations", key, words)
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > _MAX_ANNOTATION_BYTES:
        message = f"Too long: may not be more than {_MAX_ANNOTATION_BYTES} bytes"
        yield FieldError("metadata.annotations", "FieldValueTooLong", message)


def _owner_faults(owners: list[Mapping[str, Any]] | tuple[()]) -> Iterator[FieldError]:
    for index, owner in enumerate(owners):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                yield required(f"metadata.ownerReferences[{index}].{field}", "must not be empty")
    controllers = [owner for owner in owners if owner.get("controller")]
    if len(controllers) > 1:
        listed = " and ".join(f"{owner.get('kind')} {owner.get('name')}" for owner in controllers[:2])
        words = f"Only one reference can have Controller set to true. Found: {listed}"
        yield invalid_value("metadata.ownerReferences", controllers[1].get("name"), words)
