"""The rules of events as `events.k8s.io` takes them: a new one must say more than one of the core group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tarragon.localcluster.schema.field_errors import Fault, invalid_value, required

Json = dict[str, Any]

_TYPES = ("Normal", "Warning")
_LONGEST_NOTE = 1024
_OLD_FIELDS = (
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("deprecatedSource", "source"),
)


def prepare(event: Json) -> None:
    """The core form always has a source."""
    event.setdefault("deprecatedSource", {})


def faults(event: Mapping[str, Any]) -> Iterator[Fault]:
    """Of all, those that the core group made among them: they have no `eventTime`."""
    namespace = event["metadata"].get("namespace", "")
    about = (event.get("regarding") or {}).get("namespace") or ""
    if (about and about != namespace) or (not about and namespace not in {"default", "kube-system"}):
        yield invalid_value("involvedObject.namespace", about, "does not match event.namespace")
    if not event.get("eventTime"):
        return
    for field in ("reportingController", "reportingInstance", "action", "reason"):
        if not event.get(field):
            yield required(field)
    if event.get("type") not in _TYPES:
        yield invalid_value("type", event.get("type") or "", "has invalid value: " + str(event.get("type") or ""))
    if len(event.get("note") or "") > _LONGEST_NOTE:
        yield invalid_value("message", "", f"can have at most {_LONGEST_NOTE} characters")


def creation_faults(event: Mapping[str, Any]) -> Iterator[Fault]:
    if not event.get("eventTime"):
        yield required("eventTime")
    for field, told in _OLD_FIELDS:
        if event.get(field):
            yield invalid_value(told, event[field], "needs to be unset")
