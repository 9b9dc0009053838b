"""Server-side apply: merges an applied object into the live one, and updates its managedFields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tarragon.localcluster.api import errors
from tarragon.localcluster.api.requests import Json, RequestTarget
from tarragon.localcluster.apply.managed_fields import last_applied
from tarragon.localcluster.apply.managed_fields.conflicts import FieldConflictsError
from tarragon.localcluster.apply.managed_fields.field_types import type_of
from tarragon.localcluster.apply.managed_fields.ownership import ApplyResult, LiveObject, WriteScope, after_apply
from tarragon.localcluster.apply.managed_fields.recording import WriteOwner, entries_of_served_versions, write_scope
from tarragon.localcluster.apply.managed_fields.validation import type_faults
from tarragon.localcluster.apply.managed_fields.zero_values import zero_value
from tarragon.localcluster.kinds.resource import ServedKind
from tarragon.localcluster.registry.strategy import FieldManager, entry_header

SCALE = ("autoscaling/v1", "Scale")


def server_side_applied(
    target: RequestTarget, live: Json | None, body: Json, author: FieldManager, *, force: bool
) -> Json:
    """The object after an apply, with its managedFields. `live` is None for a new object, else it may be changed.

    Raises BadRequest, Conflict, and the 500 of a kube-apiserver that cannot type the applied object.
    """
    served = target.served
    _refuse_other_kind(body, (served.api_version, served.kind))
    _refuse_misfits(target, body)
    scope = write_scope(served, WriteOwner(entry_header(served, author)))
    current = _live(served, live)
    result = _apply(current, body, scope, author, force=force)
    thing = (
        last_applied.with_updated_annotation(result.thing, body)
        if author.manager == last_applied.MANAGER
        else result.thing
    )
    metadata = {**(thing.get("metadata") or {}), "managedFields": result.entries}
    if live is None:
        metadata.pop("resourceVersion", None)
    if live is None and metadata.get("uid"):
        why = f"uid mismatch: the provided object specified uid {metadata['uid']}, and no existing object was found"
        raise errors.conflict(served, target.name, why)
    return {**thing, "apiVersion": served.api_version, "kind": served.kind, "metadata": metadata}


def scale_as_parent(served: ServedKind, scale: Json) -> Json:
    """Translate an applied Scale into an apply of the object that it scales."""
    _refuse_other_kind(scale, SCALE)
    assert served.scale is not None  # noqa: S101 - callers check that the kind has a scale
    body: Json = {"apiVersion": served.api_version, "kind": served.kind}
    if isinstance(metadata := scale.get("metadata"), dict):
        body["metadata"] = {name: metadata[name] for name in ("name", "namespace", "managedFields") if name in metadata}
    spec = scale.get("spec")
    if not isinstance(spec, dict) or "replicas" not in spec:
        return body
    value: Any = spec["replicas"]
    for step in reversed(served.scale.spec_replicas):
        value = {step: value}
    return {**body, **value}


def _live(served: ServedKind, live: Json | None) -> LiveObject:
    if live is None:
        return LiveObject(thing={}, entries=(), zero={})
    entries = entries_of_served_versions(served, live["metadata"].pop("managedFields", None) or [])
    return LiveObject(thing=live, entries=entries, zero=zero_value(served))


def _apply(live: LiveObject, body: Json, scope: WriteScope, author: FieldManager, *, force: bool) -> ApplyResult:
    try:
        return after_apply(live, body, scope, force=force)
    except FieldConflictsError as error:
        if author.manager != last_applied.MANAGER:
            raise error.to_api_error() from error
        unchanged = last_applied.unchanged_fields(scope.type, live.thing, scope.entry_header["apiVersion"])
        if remaining := error.excluding(unchanged):
            raise FieldConflictsError(remaining).to_api_error() from error
    return after_apply(live, body, scope, force=True)


def _refuse_other_kind(body: Mapping[str, Any], expected: tuple[str, str]) -> None:
    version, kind = str(body.get("apiVersion") or ""), str(body.get("kind") or "")
    if (version, kind) != expected:
        group, _, short = version.rpartition("/")
        raise errors.bad_request(f"invalid object type: {group}/{short}, Kind={kind}")
    metadata = body.get("metadata")
    if isinstance(metadata, Mapping) and metadata.get("managedFields") is not None:
        raise errors.bad_request("metadata.managedFields must be nil")


def _refuse_misfits(target: RequestTarget, body: Json) -> None:
    found = list(type_faults(type_of(target.served), body))
    if not found:
        return
    words = found[0] if len(found) == 1 else "errors:\n  " + "\n  ".join(found)
    served, metadata = target.served, body.get("metadata") or {}
    name = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}" if isinstance(metadata, dict) else "/"
    description = f"{name}; {served.group}/{served.version}, Kind={served.kind}"
    raise errors.failure(500, "", f"failed to create typed patch object ({description}): {words}")
