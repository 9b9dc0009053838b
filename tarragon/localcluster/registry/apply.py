"""Server-side apply: merges an applied object into the live one, and updates its managedFields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tarragon.localcluster.api import errors
from tarragon.localcluster.api.requests import Json, Target
from tarragon.localcluster.apply.fields import last_applied
from tarragon.localcluster.apply.fields.check import misfits
from tarragon.localcluster.apply.fields.conflicts import ConflictsError
from tarragon.localcluster.apply.fields.ownership import Applied, Door, Live, after_apply
from tarragon.localcluster.apply.fields.recording import Writing, door_of, of_known_versions
from tarragon.localcluster.apply.fields.types import type_of
from tarragon.localcluster.apply.fields.zero import zero
from tarragon.localcluster.kinds.resource import Served
from tarragon.localcluster.registry.strategy import Author, title

SCALE = ("autoscaling/v1", "Scale")


def applied(target: Target, live: Json | None, body: Json, author: Author, *, force: bool) -> Json:
    """The object after an apply, with its managedFields. `live` is None for a new object, else it may be changed.

    Raises BadRequest, Conflict, and the 500 of a kube-apiserver that cannot type the applied object.
    """
    served = target.served
    _refuse_other_kind(body, (served.api_version, served.kind))
    _refuse_misfits(target, body)
    scope = door_of(served, Writing(title(served, author)))
    current = _live(served, live)
    result = _apply(current, body, scope, author, force=force)
    thing = last_applied.kept_up(result.thing, body) if author.manager == last_applied.MANAGER else result.thing
    metadata = {**(thing.get("metadata") or {}), "managedFields": result.entries}
    if live is None:
        metadata.pop("resourceVersion", None)
    if live is None and metadata.get("uid"):
        why = f"uid mismatch: the provided object specified uid {metadata['uid']}, and no existing object was found"
        raise errors.conflict(served, target.name, why)
    return {**thing, "apiVersion": served.api_version, "kind": served.kind, "metadata": metadata}


def as_parent(served: Served, scale: Json) -> Json:
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


def _live(served: Served, live: Json | None) -> Live:
    if live is None:
        return Live(thing={}, entries=(), zero={})
    entries = of_known_versions(served, live["metadata"].pop("managedFields", None) or [])
    return Live(thing=live, entries=entries, zero=zero(served))


def _apply(live: Live, body: Json, scope: Door, author: Author, *, force: bool) -> Applied:
    try:
        return after_apply(live, body, scope, force=force)
    except ConflictsError as error:
        if author.manager != last_applied.MANAGER:
            raise error.refusal() from error
        unchanged = last_applied.still_as_applied(scope.type, live.thing, scope.title["apiVersion"])
        if remaining := error.but(unchanged):
            raise ConflictsError(remaining).refusal() from error
    return after_apply(live, body, scope, force=True)


def _refuse_other_kind(body: Mapping[str, Any], expected: tuple[str, str]) -> None:
    version, kind = str(body.get("apiVersion") or ""), str(body.get("kind") or "")
    if (version, kind) != expected:
        group, _, short = version.rpartition("/")
        raise errors.bad_request(f"invalid object type: {group}/{short}, Kind={kind}")
    metadata = body.get("metadata")
    if isinstance(metadata, Mapping) and metadata.get("managedFields") is not None:
        raise errors.bad_request("metadata.managedFields must be nil")


def _refuse_misfits(target: Target, body: Json) -> None:
    found = list(misfits(type_of(target.served), body))
    if not found:
        return
    words = found[0] if len(found) == 1 else "errors:\n  " + "\n  ".join(found)
    served, metadata = target.served, body.get("metadata") or {}
    name = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}" if isinstance(metadata, dict) else "/"
    description = f"{name}; {served.group}/{served.version}, Kind={served.kind}"
    raise errors.failure(500, "", f"failed to create typed patch object ({description}): {words}")
