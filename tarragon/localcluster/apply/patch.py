"""Applies JSON patches, merge patches and strategic merge patches. Server-side apply is in registry/apply.py."""

from __future__ import annotations

from collections.abc import Collection
from types import MappingProxyType
from typing import Any

import jsonpatch
import jsonpointer

from tarragon.kube.codec import encode
from tarragon.kube.json_depth import MAX_DEPTH, MAX_MANIFEST_DEPTH, is_depth_within
from tarragon.kube.merge_patch import apply_merge_patch
from tarragon.localcluster.api import errors
from tarragon.localcluster.api.requests import Json, PatchBody, PatchType
from tarragon.localcluster.apply.strategic import StrategicError, strategic_merge
from tarragon.localcluster.kinds.go_types import go_type_of
from tarragon.localcluster.kinds.resource import ServedKind
from tarragon.localcluster.schema.field_errors import invalid_value

_MAX_OPERATIONS = 10_000
_MAX_COPIED_BYTES = 3 * 2**20
"""Bytes that the `copy` operations of one patch may add, as in kube-apiserver."""


class _Replace(jsonpatch.ReplaceOperation):
    """Sets a missing key as well, as a kube-apiserver's `replace` does. Clients rely on it."""

    def apply(self, obj: Any) -> Any:
        parent, key = self.pointer.to_last(obj)
        if key is not None and isinstance(parent, dict) and "value" in self.operation:
            parent[key] = self.operation["value"]
            return obj
        return super().apply(obj)


class _JsonPatch(jsonpatch.JsonPatch):
    operations = MappingProxyType({**jsonpatch.JsonPatch.operations, "replace": _Replace})


def apply_patch(served: ServedKind, thing: Json, patch: PatchBody) -> Json:
    """The object after the patch; `thing` may be changed. Raises BadRequest, Invalid or 415 as kube-apiserver does."""
    match patch.type:
        case PatchType.JSON:
            return _json_patched(thing, patch.body)
        case PatchType.MERGE:
            return _checked(served, apply_merge_patch(thing, patch.body))
        case PatchType.STRATEGIC:
            return _strategic(served, thing, patch.body)
        case PatchType.APPLY:
            raise errors.unsupported_media_type(_accepted(served))


def changed_parts(patch: PatchBody) -> Collection[str] | None:
    """The top-level fields that a patch may change, None for all."""
    is_by_part = patch.type in {PatchType.MERGE, PatchType.STRATEGIC} and isinstance(patch.body, dict)
    return None if not is_by_part or any(name.startswith("$") for name in patch.body) else patch.body.keys()


def _json_patched(thing: Json, operations: Any) -> Json:
    if not isinstance(operations, list):
        found = "object" if isinstance(operations, dict) else type(operations).__name__
        raise errors.bad_request(f"json: cannot unmarshal {found} into Go value of type jsonpatch.Patch")
    if not all(isinstance(operation, dict) for operation in operations):
        raise errors.bad_request("json: cannot unmarshal into Go value of type jsonpatch.Operation")
    if len(operations) > _MAX_OPERATIONS:
        count = len(operations)
        words = f"The allowed maximum operations in a JSON patch is {_MAX_OPERATIONS}, got {count}"
        raise errors.failure(413, "RequestEntityTooLarge", words)
    try:
        result = _apply_in_order(_JsonPatch(operations), thing)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, TypeError, KeyError, ValueError) as error:
        message = "the server rejected our request due to an error in our request"
        raise errors.failure(422, "Invalid", message, {}) from error
    if not isinstance(result, dict):
        raise errors.bad_request("the result of the patch is not an object")
    # managedFields nest a little deeper than the object itself.
    is_shallow = is_depth_within(encode({**result, "metadata": None}), MAX_MANIFEST_DEPTH)
    if not (is_shallow and is_depth_within(encode(result), MAX_DEPTH)):
        raise errors.nested_too_deeply()
    return result


def _apply_in_order(operations: _JsonPatch, thing: Any) -> Any:
    """Raises 413 when copies of copies would blow up a small patch."""
    copied = 0
    for operation in operations:
        if operation["op"] == "copy":
            copied += len(encode(jsonpointer.resolve_pointer(thing, operation["from"])))
            if copied > _MAX_COPIED_BYTES:
                words = f"the accumulated size increase of copy is {copied}, exceeding the limit {_MAX_COPIED_BYTES}"
                raise errors.failure(413, "RequestEntityTooLarge", f"Unable to complete the copy, {words}")
        thing = _JsonPatch([operation]).apply(thing, in_place=True)
    return thing


def _strategic(served: ServedKind, thing: Json, patch: Any) -> Json:
    shape = None if served.is_custom else go_type_of(served.group, served.version, served.kind)
    if shape is None:
        raise errors.unsupported_media_type(_accepted(served))
    if not isinstance(patch, dict):
        raise _bad_patch(served, patch, "cannot be applied to an object")
    try:
        return strategic_merge(shape, thing, patch)
    except StrategicError as error:
        raise _bad_patch(served, patch, str(error)) from error


def _checked(served: ServedKind, result: Any) -> Json:
    if not isinstance(result, dict):
        raise _bad_patch(served, result, "cannot be applied to an object")
    return result


def _bad_patch(served: ServedKind, patch: Any, reason: str) -> Exception:
    return errors.invalid(served, "", [invalid_value("patch", patch, reason)])


def _accepted(served: ServedKind) -> list[str]:
    kinds = [PatchType.JSON, PatchType.MERGE, *([] if served.is_custom else [PatchType.STRATEGIC]), PatchType.APPLY]
    return [kind.value for kind in kinds]
