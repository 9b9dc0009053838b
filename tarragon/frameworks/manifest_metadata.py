"""Turns a live object into a manifest: strips what a server and the operator have added."""

from __future__ import annotations

from collections.abc import Mapping

from tarragon.frameworks.dialect_detection import LAST_APPLIED_ANNOTATION
from tarragon.job.model import GENERATION_ANNOTATION, MANIFEST_ANNOTATION, RUNTIME_ID_ANNOTATION
from tarragon.kube.meta import Json, JsonObject

SERVER_FIELDS = frozenset(
    {
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "generation",
        "managedFields",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)
LIVE_ANNOTATIONS = frozenset(
    {GENERATION_ANNOTATION, LAST_APPLIED_ANNOTATION, MANIFEST_ANNOTATION, RUNTIME_ID_ANNOTATION}
)
"""Annotations that belong to the live job and not to its manifest."""


def as_manifest(found: JsonObject) -> dict[str, Json]:
    """The object as a user could submit it again."""
    fields = {name: value for name, value in found.items() if name not in {"status", "metadata"}}
    metadata = found.get("metadata")
    order: dict[str, Json] = {name: fields.pop(name) for name in ("apiVersion", "kind") if name in fields}
    return {**order, "metadata": _kept(metadata) if isinstance(metadata, Mapping) else {}, **fields}


def annotations_of(found: JsonObject) -> dict[str, str]:
    metadata = found.get("metadata")
    said = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    return dict(said) if isinstance(said, Mapping) else {}


def with_annotations(found: JsonObject, said: Mapping[str, str]) -> dict[str, Json]:
    """The object with exactly these annotations; without any, the field is removed."""
    metadata = {name: value for name, value in (found.get("metadata") or {}).items() if name != "annotations"}
    return {**found, "metadata": {**metadata, **({"annotations": dict(said)} if said else {})}}


def in_order_of(value: Json, like: Json) -> Json:
    """The value with its fields in the order of `like`, because servers sort them."""
    if isinstance(value, dict) and isinstance(like, dict):
        order = [*(name for name in like if name in value), *(name for name in value if name not in like)]
        return {name: in_order_of(value[name], like.get(name)) for name in order}
    if isinstance(value, list) and isinstance(like, list):
        return [in_order_of(each, like[index] if index < len(like) else None) for index, each in enumerate(value)]
    return value


def _kept(metadata: JsonObject) -> dict[str, Json]:
    kept = {name: value for name, value in metadata.items() if name not in SERVER_FIELDS and value is not None}
    said = kept.get("annotations")
    if isinstance(said, Mapping):
        kept["annotations"] = {name: value for name, value in said.items() if name not in LIVE_ANNOTATIONS}
        if not kept["annotations"]:
            del kept["annotations"]
    return kept
