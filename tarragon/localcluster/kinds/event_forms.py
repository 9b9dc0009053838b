"""Events in their two forms: stored as the core group has them, shown by `events.k8s.io` under its own names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]

NEW_NAMES: Mapping[str, str] = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
"""Of a field of the core form, what `events.k8s.io` calls it. All others have one name."""

_OLD_NAMES = {new: old for old, new in NEW_NAMES.items()}
_NEW_PATH = re.compile(r"(?:(?<=,)|^)(?:regarding|reportingController)(?=[.=!])")


def shown(event: Json) -> Json:
    """An event of the core group as `events.k8s.io/v1` has it."""
    renamed = {NEW_NAMES.get(name, name): value for name, value in event.items()}
    return {**renamed, "apiVersion": "events.k8s.io/v1"}


def kept(event: Json) -> Json:
    """The other way."""
    renamed = {_OLD_NAMES.get(name, name): value for name, value in event.items()}
    return {**renamed, "apiVersion": "v1"}


def old_fields(selector: str) -> str:
    """The field selector `regarding.name=p` as the core form has it."""
    return _NEW_PATH.sub(lambda found: _OLD_NAMES[found[0]], selector)
