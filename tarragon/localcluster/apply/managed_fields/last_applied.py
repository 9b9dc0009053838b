"""The annotation of client-side apply, which server-side apply by kubectl takes over and keeps up to date."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from tarragon.kube.codec import decode
from tarragon.localcluster.apply.managed_fields import field_set
from tarragon.localcluster.apply.managed_fields.compare import compare
from tarragon.localcluster.apply.managed_fields.extract import applied_fields
from tarragon.localcluster.apply.managed_fields.field_set import Fields
from tarragon.localcluster.apply.managed_fields.field_types import FieldType

Json = dict[str, Any]

ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
MANAGER = "kubectl"
"""The annotation matters only to applies under this name."""


def unchanged_fields(field_type: FieldType, live: Json, version: str) -> Fields:
    """The fields unchanged since the last client-side apply. Taking them over is no conflict."""
    try:
        last = decode(_annotations(live).get(ANNOTATION, "").encode(), dict)
    except (msgspec.MsgspecError, AttributeError):
        return {}
    if last.get("apiVersion") != version:
        return {}
    change = compare(field_type, last, live)
    fields = applied_fields(field_type, last)
    for part in (change.modified, change.added, change.removed):
        fields = field_set.difference(fields, part)
    return fields


def with_updated_annotation(thing: Json, applied: Mapping[str, Any]) -> Json:
    """The object with its annotation, if any, updated to what is applied now. Neither argument is changed."""
    annotations = _annotations(thing)
    if not annotations.get(ANNOTATION):
        return thing
    updated = {**annotations, ANNOTATION: _annotation_text(applied)}
    return {**thing, "metadata": {**thing["metadata"], "annotations": updated}}


def _annotation_text(applied: Mapping[str, Any]) -> str:
    metadata = dict(applied.get("metadata") or {})
    if "annotations" in metadata:
        own = metadata["annotations"] or {}
        metadata["annotations"] = {name: value for name, value in own.items() if name != ANNOTATION}
    text = json.dumps({**applied, "metadata": metadata}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return f"{text}\n"


def _annotations(thing: Mapping[str, Any]) -> dict[str, str]:
    found = (thing.get("metadata") or {}).get("annotations")
    return found if isinstance(found, dict) else {}
