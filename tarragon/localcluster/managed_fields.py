"""metadata.managedFields, as far as it goes: who wrote which top-level part of an object, in which version, when.

Ownership field by field, and the conflicts of server-side apply that rest on it, are not kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]

_SAID_ELSEWHERE = frozenset({"apiVersion", "kind"})
_OWN_METADATA = ("labels", "annotations", "finalizers", "ownerReferences")


def record(thing: Json, old: Mapping[str, Any] | None, entry: Json) -> None:
    """Note, in place, what has changed since `old` (None: everything is new) under the manager of `entry`.

    `entry` has manager, operation, apiVersion, time and maybe subresource. Nothing changed, nothing noted.
    """
    kept: list[Json] = list((old or {}).get("metadata", {}).get("managedFields") or ())
    changed = _changed(thing, old)
    if changed:
        mine = next((one for one in kept if _mark(one) == _mark(entry)), None)
        if mine is not None:
            kept.remove(mine)
        owned = sorted({*(mine or {}).get("fieldsV1", {}), *changed})
        kept.append({**entry, "fieldsType": "FieldsV1", "fieldsV1": {field: {} for field in owned}})
        kept.sort(key=lambda one: (one.get("operation") != "Apply", one.get("time", ""), one.get("manager", "")))
    if kept:
        thing["metadata"]["managedFields"] = kept
    else:
        thing["metadata"].pop("managedFields", None)


def _changed(thing: Mapping[str, Any], old: Mapping[str, Any] | None) -> list[str]:
    before: Mapping[str, Any] = old or {}
    parts = {*thing, *before} - _SAID_ELSEWHERE - {"metadata"}
    changed = [f"f:{part}" for part in parts if thing.get(part) != before.get(part)]
    metadata, before_metadata = thing["metadata"], before.get("metadata") or {}
    if any(metadata.get(field) != before_metadata.get(field) for field in _OWN_METADATA):
        changed.append("f:metadata")
    return changed


def _mark(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(entry.get(field) for field in ("manager", "operation", "apiVersion", "subresource"))
