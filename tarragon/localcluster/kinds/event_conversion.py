"""Converts events between the core group's form, which is stored, and that of `events.k8s.io`, which renames fields."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]

RENAMED_FIELDS: Mapping[str, str] = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
"""The fields of the core form that have another name in `events.k8s.io`."""

_OLD_NAMES = {new: old for old, new in RENAMED_FIELDS.items()}
_NEW_PATH = re.compile(r"(?:(?<=,)|^)(?:regarding|reportingController)(?=[.=!])")


def to_events_group(event: Json) -> Json:
    """Convert an event of the core group to `events.k8s.io/v1`."""
    renamed = {RENAMED_FIELDS.get(name, name): value for name, value in event.items()}
    return {**renamed, "apiVersion": "events.k8s.io/v1"}


def to_core_group(event: Json) -> Json:
    """Convert an event of `events.k8s.io/v1` to the core group."""
    renamed = {_OLD_NAMES.get(name, name): value for name, value in event.items()}
    return {**renamed, "apiVersion": "v1"}


def to_core_field_selector(selector: str) -> str:
    """Convert a field selector, such as `regarding.name=p`, to the core form."""
    return _NEW_PATH.sub(lambda found: _OLD_NAMES[found[0]], selector)
