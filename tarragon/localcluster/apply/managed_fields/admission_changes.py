"""Finds the fields that admission fills into a new object, which no manager owns."""

from __future__ import annotations

from typing import Any

from tarragon.localcluster.apply.managed_fields.compare import compare
from tarragon.localcluster.apply.managed_fields.field_set import Fields
from tarragon.localcluster.apply.managed_fields.field_types import type_of
from tarragon.localcluster.kinds.resource import ServedKind

Json = dict[str, Any]

_CHANGED_BY_ADMISSION = frozenset({"pods", "services"})


def copy_before_admission(served: ServedKind, thing: Json) -> Json | None:
    """Copy a new object before admission, as deeply as admission changes it; None for kinds that it does not change."""
    if served.full_name not in _CHANGED_BY_ADMISSION:
        return None
    metadata, spec = thing.get("metadata") or {}, thing.get("spec") or {}
    copied = {name: _copied(value) for name, value in spec.items()}
    return {"metadata": {**metadata, "annotations": dict(metadata.get("annotations") or {})}, "spec": copied}


def added_by_admission(served: ServedKind, sent: Json | None, thing: Json) -> Fields:
    """The fields that were added since `sent` was copied."""
    return {} if sent is None else compare(type_of(served), sent, {name: thing.get(name) or {} for name in sent}).added


def _copied(value: Any) -> Any:
    if type(value) is not list:
        return value
    return [_with_own_resources(item) if type(item) is dict else item for item in value]


def _with_own_resources(item: Json) -> Json:
    resources = item.get("resources")
    if not isinstance(resources, dict):
        return {**item}
    own = {name: dict(part) if isinstance(part, dict) else part for name, part in resources.items()}
    return {**item, "resources": own}
