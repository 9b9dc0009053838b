"""The defaults of LimitRanges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]


def default_range(limit_range: Json, _: Mapping[str, Any]) -> None:
    """Of containers: the default limit is the maximum, the default request the default limit or the minimum."""
    for item in (limit_range.get("spec") or {}).get("limits") or ():
        if item.get("type") == "Container":
            limits = {**(item.get("max") or {}), **(item.get("default") or {})}
            requests = {**(item.get("min") or {}), **limits, **(item.get("defaultRequest") or {})}
            item.update({name: value for name, value in (("default", limits), ("defaultRequest", requests)) if value})


def prepare_range(limit_range: Json) -> None:
    default_range(limit_range, {})
