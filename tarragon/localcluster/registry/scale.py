"""The subresource `scale`: reads an autoscaling/v1 Scale from, and writes it to, the paths that a kind declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tarragon.localcluster.api import errors
from tarragon.localcluster.api.requests import Json, PatchBody, PatchType
from tarragon.localcluster.apply.patch import apply_patch
from tarragon.localcluster.kinds.resource import ServedKind
from tarragon.localcluster.schema.field_errors import invalid_value
from tarragon.localcluster.tables.workload_columns import selector_text

_METADATA_FIELDS = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
_REPLICAS_LIMIT = 2**31


def scale_of(served: ServedKind, thing: Mapping[str, Any]) -> Json:
    """The object's Scale. Raises InternalError, as a kube-apiserver does, if the object has no spec replicas."""
    paths = served.scale
    assert paths is not None  # noqa: S101 - callers check that the kind has a scale
    replicas = _at(thing, paths.spec_replicas)
    if not _is_count(replicas):
        raise errors.internal(f'the spec replicas field ".{".".join(paths.spec_replicas)}" does not exist')
    return _scale(served, thing, replicas)


def patched_scale(served: ServedKind, thing: Json, patch: PatchBody) -> Json:
    """The Scale after a patch. Missing spec replicas count as 0."""
    if served.is_custom and patch.type not in {PatchType.JSON, PatchType.MERGE}:
        raise errors.unsupported_media_type([PatchType.JSON.value, PatchType.MERGE.value])
    paths = served.scale
    assert paths is not None  # noqa: S101 - as above
    replicas = _at(thing, paths.spec_replicas)
    return apply_patch(served, _scale(served, thing, replicas if _is_count(replicas) else 0), patch)


def apply_scale(served: ServedKind, thing: Json, scale: Any) -> Json:
    """Set a Scale's replicas in the object, in place. Raises BadRequest for what is no Scale, Invalid for a bad one."""
    paths = served.scale
    assert paths is not None  # noqa: S101 - as above
    if not isinstance(scale, dict) or scale.get("kind", "Scale") != "Scale":
        raise errors.bad_request("the body must be an autoscaling/v1 Scale")
    spec, metadata = scale.get("spec") or {}, scale.get("metadata") or {}
    replicas = spec.get("replicas", 0) if isinstance(spec, dict) else None
    if not isinstance(replicas, int) or isinstance(replicas, bool) or not isinstance(metadata, dict):
        raise errors.bad_request('Scale in version "v1" cannot be handled as a Scale: spec.replicas must be an integer')
    if not 0 <= replicas < _REPLICAS_LIMIT:
        fault = invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")
        raise errors.invalid(served, thing["metadata"]["name"], [fault])
    if metadata.get("resourceVersion"):
        thing["metadata"]["resourceVersion"] = str(metadata["resourceVersion"])
    *parents, last = paths.spec_replicas
    parent: Json = thing
    for step in parents:
        if not isinstance(parent.get(step), dict):
            parent[step] = {}
        parent = parent[step]
    parent[last] = replicas
    return thing


def _scale(served: ServedKind, thing: Mapping[str, Any], replicas: int) -> Json:
    paths = served.scale
    assert paths is not None  # noqa: S101 - as above
    running = _at(thing, paths.status_replicas)
    status: Json = {"replicas": running if _is_count(running) else 0}
    selector = _at(thing, paths.label_selector) if paths.label_selector else None
    if text := _selector_text(selector):
        status["selector"] = text
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: thing["metadata"][name] for name in _METADATA_FIELDS if name in thing["metadata"]},
        "spec": {"replicas": replicas},
        "status": status,
    }


def _selector_text(selector: Any) -> str:
    """The text of what the path leads to: a selector's text in custom kinds, the selector itself in built-in ones."""
    if isinstance(selector, Mapping):
        return selector_text(selector)
    return selector if isinstance(selector, str) else ""


def _at(thing: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        thing = thing.get(step) if isinstance(thing, Mapping) else None
    return thing


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
