"""Applies merge patches (RFC 7386), and computes the smallest merge patch between two values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def apply_merge_patch(target: Any, patch: Any) -> Any:
    """Apply a patch. Neither argument is modified; parts that the patch does not touch are shared, not copied."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(target) if isinstance(target, Mapping) else {}
    for name, change in patch.items():
        if change is None:
            result.pop(name, None)
        else:
            result[name] = apply_merge_patch(result.get(name), change)
    return result


def create_merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The patch that turns `before` into `after`; empty if they are equal. Lists are replaced as a whole."""
    patch: dict[str, Any] = {name: None for name in before if name not in after}
    for name, value in after.items():
        old = before.get(name)
        if name in before and old == value:
            continue
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            patch[name] = create_merge_patch(old, value)
        else:
            patch[name] = value
    return patch


def without_nulls(value: Any) -> Any:
    """The value without null fields, which mean the same as missing ones. A merge patch keeps nulls within lists."""
    if isinstance(value, Mapping):
        return {name: without_nulls(each) for name, each in value.items() if each is not None}
    if isinstance(value, list | tuple):
        return [without_nulls(each) for each in value]
    return value
